/* A tool of the guest's own: the model calls a function of this program.
 *
 *     bascule run guest_tool.wasm --model rehearsal
 */
#include "bascule.h"

static int32_t count_words(const char *arguments, uint32_t length, char *out, uint32_t *out_length) {
    (void)length;
    bsc_buffer text = {0}, result = {0};
    if (bsc_read(arguments, "text", &text) < 0) return -BSC_EINVAL;
    int words = 0;
    for (uint32_t i = 0; i < text.length; i++)
        words += text.data[i] != ' ' && (!i || text.data[i - 1] == ' ');
    bsc_add(&result, "{\"words\":");
    bsc_add_number(&result, words);
    bsc_add(&result, "}");
    return bsc_answer(result.data, out, out_length);
}

static const char DESCRIPTION[] =
    "{\"name\":\"count_words\",\"description\":\"Count the words of a text.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},"
    "\"required\":[\"text\"]}}";

int guest(void) {
    int chat = bsc_chat();
    if (chat < 0) return bsc_failed("cchat_create", chat);
    int failed = bsc_tool(chat, count_words, DESCRIPTION);
    if (failed) return bsc_failed("cchat_write_fn", failed);
    bsc_say(chat, "user", bsc_argument(1, "call count_words with {\"text\": \"one two three\"}"));

    /* The host asks the model, runs what it calls, and comes back with the last answer. */
    int answer = bsc_send(chat, BSC_AUTO_TOOL_CALL);
    if (answer < 0) return bsc_failed("cchat_send", answer);
    bsc_buffer body = {0}, text = {0};
    int length = bsc_receive(answer, &body);
    if (length < 0) return bsc_failed("cchat_recv", length);
    if (bsc_read(body.data, "choices.0.message.content", &text) < 0) {
        bsc_log(BSC_ERROR, body.data);
        return 1;
    }
    bsc_add(&text, "\n");
    return bsc_print(text.data);
}
