/* Both ways in one: the program calls a tool itself, then lets a model call one and the program.
 *
 *     bascule run both.wasm --task demo --model rehearsal
 */
#include "bascule.h"

static int32_t shout(const char *arguments, uint32_t length, char *out, uint32_t *out_length) {
    (void)length;
    bsc_buffer text = {0};
    if (bsc_read(arguments, "text", &text) < 0) return -BSC_EINVAL;
    for (uint32_t i = 0; i < text.length; i++)
        if (text.data[i] >= 'a' && text.data[i] <= 'z') text.data[i] -= 'a' - 'A';
    return bsc_answer(text.data, out, out_length);
}

static const char SHOUT[] =
    "{\"name\":\"shout\",\"description\":\"Say it in capitals.\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}}}}";

/* The program decides: one tool, by its own name. */
static int list_notes(void) {
    int notes = bsc_open("notes");
    if (notes < 0) return bsc_failed("mcp_open", notes);
    bsc_buffer answer = {0}, names = {0};
    int length = bsc_call(notes, "list_notes", "{}", &answer);
    if (length < 0) return bsc_failed("mcp_call_tool", length);
    bsc_read(answer.data, "structured.notes", &names);
    bsc_add(&names, "\n");
    bsc_print(names.data);
    return bsc_close(notes);
}

/* The model decides: of the task's tools and of ours. */
static int ask_model(void) {
    int chat = bsc_chat();
    if (chat < 0) return bsc_failed("cchat_create", chat);
    int failed = bsc_set(chat, "mcp.server_ids", "[\"notes\"]");
    if (failed) return bsc_failed("mcp.server_ids", failed);
    bsc_tool(chat, shout, SHOUT);
    bsc_say(chat, "user", bsc_argument(1, "call notes.read_note with {\"name\": \"welcome\"} "
                                          "then call shout with {\"text\": \"done\"}"));
    int answer = bsc_send(chat, BSC_AUTO_TOOL_CALL);
    if (answer < 0) return bsc_failed("cchat_send", answer);
    bsc_buffer body = {0}, text = {0};
    bsc_receive(answer, &body);
    if (bsc_read(body.data, "choices.0.message.content", &text) < 0) {
        bsc_log(BSC_ERROR, body.data);
        return 1;
    }
    bsc_add(&text, "\n");
    return bsc_print(text.data);
}

int guest(void) {
    int code = list_notes();
    return code ? code : ask_model();
}
