/* What refusals and mistakes look like to a guest: numbers for the call, JSON for the tool.
 *
 *     bascule run errors.wasm --task demo
 */
#include "bascule.h"

static void show(const char *what, int code) {
    bsc_buffer line = {0};
    bsc_add(&line, what), bsc_add(&line, ": ");
    bsc_add(&line, code < 0 ? bsc_error(code) : "done"), bsc_add(&line, "\n");
    bsc_print(line.data);
}

int guest(void) {
    show("a server that there is not", bsc_open("nowhere"));
    show("a handle that there is not", bsc_close(4711));
    show("a pointer outside the memory", host_log(BSC_INFO, (char *)0x7ffffff0, 64));

    int chat = bsc_chat();
    show("a parameter of the wrong type", bsc_set(chat, "max_iterations", "\"many\""));
    show("a parameter that is the task's", bsc_set(chat, "mcp.task_id", "\"other\""));
    show("a server that is not the task's", bsc_set(chat, "mcp.server_ids", "[\"nowhere\"]"));

    int notes = bsc_open("notes");
    if (notes < 0) return bsc_failed("mcp_open", notes);
    char little[8];
    uint32_t length = sizeof little;
    show("a buffer that is too short", host_mcp_list_tools(notes, little, &length));
    show("with the length that was told", length > sizeof little ? 0 : -BSC_EIO);

    bsc_buffer answer = {0}, code = {0};
    bsc_call(notes, "read_note", "{\"name\": 7}", &answer);
    bsc_read(answer.data, "error.code", &code);
    bsc_print("arguments that do not fit: "), bsc_print(code.data), bsc_print("\n");
    return 0;
}
