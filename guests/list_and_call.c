/* List the tools of a server of the task, and call one: no model is asked.
 *
 *     bascule run list_and_call.wasm --task demo
 */
#include "bascule.h"

static void print_names(const char *list) {
    for (int i = 0;; i++) {
        bsc_buffer path = {0}, name = {0};
        bsc_add(&path, "tools."), bsc_add_number(&path, i), bsc_add(&path, ".name");
        if (bsc_read(list, path.data, &name) < 0) return;
        bsc_add(&name, "\n");
        bsc_print(name.data);
    }
}

int guest(void) {
    int notes = bsc_open(bsc_argument(1, "notes"));
    if (notes < 0) return bsc_failed("mcp_open", notes);

    bsc_buffer answer = {0}, text = {0};
    int length = bsc_list(notes, &answer);
    if (length < 0) return bsc_failed("mcp_list_tools", length);
    print_names(answer.data);

    length = bsc_call(notes, "read_note", "{\"name\": \"welcome\"}", &answer);
    if (length < 0) return bsc_failed("mcp_call_tool", length);
    if (bsc_read(answer.data, "content.0.text", &text) < 0) {
        bsc_log(BSC_ERROR, answer.data); /* {"error": {"code", "message", "retryable"}} */
        return 1;
    }
    bsc_add(&text, "\n");
    bsc_print(text.data);
    return bsc_close(notes);
}
