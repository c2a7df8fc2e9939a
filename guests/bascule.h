/* bascule.h: Bascule's host calls for guests in C.
 *
 * Include it in one file and write `int guest(void)`; its result is the exit code. No libc is
 * needed. Every call returns 0 or more, or a negative BSC_E... number.
 *
 *     clang --target=wasm32 -Os -nostdlib -ffreestanding -mbulk-memory \
 *         -Wl,--no-entry -Wl,--export-table -Wl,-z,stack-size=65536 -o guest.wasm guest.c
 *
 * With a libc of your own, and its `main`, define BSC_NO_START before the include.
 */
#ifndef BASCULE_H
#define BASCULE_H

#include <stddef.h>
#include <stdint.h>

#define BSC_HOST(name) __attribute__((import_module("bascule"), import_name(#name))) extern
#define BSC_WASI(name) \
    __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name))) extern
#define BSC_FN static __attribute__((unused))

/* --- errors: Linux numbers, on every machine; calls return the negative --- */

#define BSC_ERRORS(X) \
    X(EPERM, 1) X(ENOENT, 2) X(EIO, 5) X(EBADF, 9) X(EAGAIN, 11) X(ENOMEM, 12) X(EACCES, 13) \
    X(EFAULT, 14) X(EEXIST, 17) X(EINVAL, 22) X(EMFILE, 24) X(ENOSPC, 28) X(EPIPE, 32) \
    X(ENOSYS, 38) X(EILSEQ, 84) X(ECONNRESET, 104) X(ENOTCONN, 107) X(ETIMEDOUT, 110) \
    X(ECANCELED, 125)

enum {
#define BSC_NUMBER(name, number) BSC_##name = number,
    BSC_ERRORS(BSC_NUMBER)
#undef BSC_NUMBER
};

/* Return what an error is called: "EACCES" for -13. */
BSC_FN const char *bsc_error(int code) {
    switch (code < 0 ? -code : code) {
#define BSC_NAME(name, number) case number: return #name;
        BSC_ERRORS(BSC_NAME)
#undef BSC_NAME
    }
    return "unknown error";
}

/* --- the imports, as they are --- */

BSC_HOST(time_now_ms) int64_t host_time_now_ms(void);
BSC_HOST(wall_time_s) int64_t host_wall_time_s(void);
BSC_HOST(random_i64) int64_t host_random_i64(void);
BSC_HOST(sleep_ms) void host_sleep_ms(int32_t ms);
BSC_HOST(log) int32_t host_log(int32_t level, const char *text, uint32_t length);
BSC_HOST(cchat_create) int32_t host_cchat_create(void);
BSC_HOST(cchat_write_msg) int32_t host_cchat_write_msg(
    int32_t fd, const char *role, uint32_t role_length, const char *text, uint32_t length);
BSC_HOST(cchat_write_fn) int32_t host_cchat_write_fn(
    int32_t fd, int32_t function, const char *json, uint32_t length);
BSC_HOST(cchat_ctl) int32_t host_cchat_ctl(
    int32_t fd, int32_t command, void *data, uint32_t *length);
BSC_HOST(cchat_send) int32_t host_cchat_send(int32_t fd, int32_t flags);
BSC_HOST(cchat_recv) int32_t host_cchat_recv(int32_t fd, void *out, uint32_t *length);
BSC_HOST(cchat_close) int32_t host_cchat_close(int32_t fd);
BSC_HOST(mcp_open) int32_t host_mcp_open(const char *server, uint32_t length);
BSC_HOST(mcp_list_tools) int32_t host_mcp_list_tools(int32_t fd, void *out, uint32_t *length);
BSC_HOST(mcp_call_tool) int32_t host_mcp_call_tool(
    int32_t fd, const char *tool, uint32_t tool_length, const char *arguments,
    uint32_t arguments_length, void *out, uint32_t *length);
BSC_HOST(mcp_close) int32_t host_mcp_close(int32_t fd);
BSC_HOST(mcp_registry_list) int32_t host_mcp_registry_list(void *out, uint32_t *length);
BSC_HOST(mcp_registry_get) int32_t host_mcp_registry_get(
    const char *server, uint32_t server_length, void *out, uint32_t *length);
BSC_HOST(spear_epoll_create) int32_t host_epoll_create(void);
BSC_HOST(spear_epoll_ctl) int32_t host_epoll_ctl(
    int32_t epoll, int32_t command, int32_t fd, int32_t events);
BSC_HOST(spear_epoll_wait) int32_t host_epoll_wait(
    int32_t epoll, void *out, uint32_t *length, int32_t timeout_ms);
BSC_HOST(spear_epoll_close) int32_t host_epoll_close(int32_t epoll);
BSC_HOST(spear_fd_ctl) int32_t host_fd_ctl(
    int32_t fd, int32_t command, void *data, uint32_t *length);
BSC_WASI(fd_write) int32_t wasi_fd_write(
    int32_t fd, const void *vectors, uint32_t count, uint32_t *written);
BSC_WASI(args_sizes_get) int32_t wasi_args_sizes_get(uint32_t *count, uint32_t *bytes);
BSC_WASI(args_get) int32_t wasi_args_get(char **arguments, char *bytes);
BSC_WASI(proc_exit) _Noreturn void wasi_proc_exit(int32_t code);

/* --- memory: it only grows, and goes with the guest --- */

extern unsigned char __heap_base;

BSC_FN uint32_t bsc_length(const char *text) {
    uint32_t length = 0;
    while (text[length]) length++;
    return length;
}

BSC_FN int bsc_is_same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

/* Return so many bytes, or NULL if there are no more. */
BSC_FN void *bsc_allocate(uint32_t size) {
    static uintptr_t next;
    if (!next) next = (uintptr_t)&__heap_base;
    uintptr_t at = (next + 7) & ~(uintptr_t)7, end = at + size;
    if (end < at) return NULL;
    uintptr_t have = __builtin_wasm_memory_size(0) << 16;
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + 0xffff) >> 16) == (size_t)-1)
        return NULL;
    next = end;
    return (void *)at;
}

/* --- text that grows: begin with `bsc_buffer text = {0};`, read `text.data`, NUL at its end --- */

typedef struct {
    char *data;
    uint32_t length, capacity;
} bsc_buffer;

/* Make room for so many bytes in all and a NUL; 0, or -ENOMEM. */
BSC_FN int bsc_reserve(bsc_buffer *text, uint32_t size) {
    if (text->data && size < text->capacity) return 0;
    uint32_t capacity = text->capacity ? text->capacity : 256;
    while (capacity <= size && capacity < 0x40000000) capacity *= 2;
    char *data = capacity <= size ? NULL : bsc_allocate(capacity);
    if (!data) return -BSC_ENOMEM;
    __builtin_memcpy(data, text->data, text->length);
    data[text->length] = 0;
    text->data = data, text->capacity = capacity;
    return 0;
}

BSC_FN void bsc_clear(bsc_buffer *text) {
    text->length = 0;
    if (text->data) text->data[0] = 0;
}

BSC_FN int bsc_add_bytes(bsc_buffer *text, const char *bytes, uint32_t length) {
    int failed = bsc_reserve(text, text->length + length);
    if (failed) return failed;
    __builtin_memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = 0;
    return 0;
}

BSC_FN int bsc_add(bsc_buffer *text, const char *more) {
    return bsc_add_bytes(text, more, bsc_length(more));
}

BSC_FN int bsc_add_number(bsc_buffer *text, int64_t number) {
    char digits[20];
    uint32_t at = sizeof digits;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0) digits[--at] = '-';
    return bsc_add_bytes(text, digits + at, sizeof digits - at);
}

/* Add a text as a JSON string, in quotes. */
BSC_FN int bsc_add_json(bsc_buffer *text, const char *more) {
    int failed = bsc_add(text, "\"");
    for (; *more && !failed; more++) {
        unsigned char c = (unsigned char)*more;
        char escaped[] = {'\\', 'u', '0', '0', "0123456789abcdef"[c >> 4],
                          "0123456789abcdef"[c & 15]};
        if (c == '"' || c == '\\') failed = bsc_add(text, "\\");
        failed = failed ? failed
               : c < 32 ? bsc_add_bytes(text, escaped, sizeof escaped)
                        : bsc_add_bytes(text, more, 1);
    }
    return failed ? failed : bsc_add(text, "\"");
}

/* --- a little JSON to read --- */

BSC_FN const char *bsc_skip_space(const char *at) {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++;
    return at;
}

BSC_FN const char *bsc_skip_string(const char *at) {
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1]) at++;
    return *at ? at + 1 : at;
}

/* Return the end of the value that begins here. */
BSC_FN const char *bsc_skip_value(const char *at) {
    int depth = 0;
    for (;;) {
        at = bsc_skip_space(at);
        int opens = *at == '{' || *at == '[', closes = *at == '}' || *at == ']';
        if (!*at || (!depth && (closes || *at == ','))) return at;
        depth += opens - closes;
        at = *at == '"' ? bsc_skip_string(at) : at + 1;
    }
}

/* Return where the value at a path begins ("choices.0.message.content"), or NULL. */
BSC_FN const char *bsc_find(const char *json, const char *path) {
    const char *at = bsc_skip_space(json);
    while (*path) {
        uint32_t length = 0, wanted = 0, index = 0;
        while (path[length] && path[length] != '.') wanted = wanted * 10 + path[length++] - '0';
        int in_list = *at == '[', is_here = 0;
        if (!in_list && *at != '{') return NULL;
        at = bsc_skip_space(at + 1);
        while (*at && *at != ']' && *at != '}' && !is_here) {
            if (in_list) {
                is_here = index++ == wanted;
            } else {
                const char *name = at + 1;
                at = bsc_skip_string(at);
                is_here = (uint32_t)(at - name) == length + 1;
                for (uint32_t i = 0; i < length && is_here; i++) is_here = name[i] == path[i];
                at = bsc_skip_space(at);
                if (*at == ':') at = bsc_skip_space(at + 1);
            }
            if (is_here) break;
            at = bsc_skip_space(bsc_skip_value(at));
            if (*at == ',') at = bsc_skip_space(at + 1);
        }
        if (!is_here) return NULL;
        path += path[length] ? length + 1 : length;
    }
    return *at ? at : NULL;
}

/* Read the four digits behind the u of an escape, and go to the last; a text may be cut. */
BSC_FN uint32_t bsc_hex(const char **at) {
    uint32_t value = 0;
    for (int i = 0; i < 4 && (*at)[1] && (*at)[1] != '"'; i++) {
        char c = *++*at;
        value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return value;
}

BSC_FN int bsc_add_character(bsc_buffer *text, uint32_t c) {
    char utf8[4];
    uint32_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (uint32_t i = more; i; i--, c >>= 6) utf8[i] = (char)(0x80 | (c & 0x3f));
    utf8[0] = (char)(more ? (0xff00 >> (more + 1) & 0xff) | c : c);
    return bsc_add_bytes(text, utf8, more + 1);
}

/* Add the value at a path: a string as the text it means, anything else as it is written.
 * 0, or -ENOENT if there is none. */
BSC_FN int bsc_read(const char *json, const char *path, bsc_buffer *out) {
    const char *at = bsc_find(json, path);
    if (!at) return -BSC_ENOENT;
    if (*at != '"') return bsc_add_bytes(out, at, (uint32_t)(bsc_skip_value(at) - at));
    int failed = 0;
    for (at++; *at && *at != '"' && !failed; at++) {
        if (*at != '\\') { failed = bsc_add_bytes(out, at, 1); continue; }
        if (!*++at) break;
        uint32_t c = (unsigned char)*at;
        if (c == 'u') {
            c = bsc_hex(&at);
            if (c >> 10 == 0x36 && at[1] == '\\' && at[2] == 'u') {
                at += 2;
                c = 0x10000 + ((c & 0x3ff) << 10) + (bsc_hex(&at) & 0x3ff);
            }
        } else {
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r'
              : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
        }
        failed = bsc_add_character(out, c);
    }
    return failed;
}

/* --- output, log, arguments --- */

BSC_FN int bsc_write(int fd, const char *bytes, uint32_t length) {
    struct { const char *at; uint32_t length; } vector = {bytes, length};
    uint32_t written;
    return -wasi_fd_write(fd, &vector, 1, &written);
}

BSC_FN int bsc_print(const char *text) { return bsc_write(1, text, bsc_length(text)); }

enum { BSC_TRACE, BSC_DEBUG, BSC_INFO, BSC_WARN, BSC_ERROR };

BSC_FN int bsc_log(int level, const char *text) {
    return host_log(level, text, bsc_length(text));
}

/* Log what failed and return an exit code: `return bsc_failed("mcp_open", fd);` */
BSC_FN int bsc_failed(const char *what, int code) {
    bsc_buffer text = {0};
    bsc_add(&text, what), bsc_add(&text, ": "), bsc_add(&text, bsc_error(code));
    bsc_log(BSC_ERROR, text.data);
    return 1;
}

/* Return an argument of `--arg`, the first is 1; or a default. */
BSC_FN const char *bsc_argument(uint32_t number, const char *otherwise) {
    uint32_t count, bytes;
    if (wasi_args_sizes_get(&count, &bytes) || number >= count) return otherwise;
    char **arguments = bsc_allocate(count * sizeof *arguments), *text = bsc_allocate(bytes);
    return arguments && text && !wasi_args_get(arguments, text) ? arguments[number] : otherwise;
}

/* --- answers of the host: a buffer that is too short grows, and the call is repeated --- */

#define BSC_RECEIVE(out, call) do { \
        uint32_t length = 0; \
        int32_t code = -BSC_ENOSPC; \
        bsc_clear(out); \
        for (int tries = 0; code == -BSC_ENOSPC && tries < 4; tries++) { \
            int failed = bsc_reserve(out, length < 4096 ? 4096 : length); \
            if (failed) return failed; \
            length = (out)->capacity - 1; \
            code = (call); \
        } \
        if (code < 0) return code; \
        (out)->length = length; \
        (out)->data[length] = 0; \
        return code; \
    } while (0)

/* --- chat --- */

enum { BSC_METRICS = 1, BSC_AUTO_TOOL_CALL = 2, BSC_STREAM = 4 };

BSC_FN int bsc_chat(void) { return host_cchat_create(); }

BSC_FN int bsc_say(int chat, const char *role, const char *text) {
    return host_cchat_write_msg(chat, role, bsc_length(role), text, bsc_length(text));
}

/* Set a parameter of any handle to a value that is JSON: `bsc_set(chat, "max_iterations", "3")`. */
BSC_FN int bsc_set(int fd, const char *key, const char *json) {
    bsc_buffer text = {0};
    bsc_add(&text, "{\"key\":"), bsc_add_json(&text, key);
    bsc_add(&text, ",\"value\":"), bsc_add(&text, json);
    int failed = bsc_add(&text, "}");
    return failed ? failed : host_fd_ctl(fd, 6, text.data, &text.length);
}

BSC_FN int bsc_set_text(int fd, const char *key, const char *value) {
    bsc_buffer text = {0};
    int failed = bsc_add_json(&text, value);
    return failed ? failed : bsc_set(fd, key, text.data);
}

BSC_FN int bsc_set_number(int fd, const char *key, int64_t value) {
    bsc_buffer text = {0};
    int failed = bsc_add_number(&text, value);
    return failed ? failed : bsc_set(fd, key, text.data);
}

/* A tool of the guest's own: reads JSON arguments (NUL at their end), answers with bsc_answer. */
typedef int32_t (*bsc_function)(
    const char *arguments, uint32_t length, char *out, uint32_t *out_length);

/* Where arguments and results of tools lie. A tool that chats itself gives that chat its own. */
BSC_FN int bsc_arena(int chat, void *arena, uint32_t size) {
    int failed = bsc_set_number(chat, "tool_arena_ptr", (intptr_t)arena);
    return failed ? failed : bsc_set_number(chat, "tool_arena_len", size);
}

/* Offer a tool to the model; `json` is a function of OpenAI's form: name, description, parameters. */
BSC_FN int bsc_tool(int chat, bsc_function function, const char *json) {
    static char arena[65536];
    int failed = bsc_arena(chat, arena, sizeof arena);
    if (failed) return failed;
    return host_cchat_write_fn(chat, (int32_t)(intptr_t)function, json, bsc_length(json));
}

BSC_FN int32_t bsc_answer(const char *text, char *out, uint32_t *out_length) {
    uint32_t room = *out_length, length = bsc_length(text);
    *out_length = length;
    if (length > room) return -BSC_ENOSPC;
    __builtin_memcpy(out, text, length);
    return 0;
}

/* Ask; the result is the handle of the answer. */
BSC_FN int bsc_send(int chat, int flags) { return host_cchat_send(chat, flags); }

/* Read an answer, or the next chunk of a stream (0 is its end); the number of its bytes. */
BSC_FN int bsc_receive(int answer, bsc_buffer *out) {
    BSC_RECEIVE(out, host_cchat_recv(answer, out->data, &length));
}

BSC_FN int bsc_metrics(int answer, bsc_buffer *out) {
    BSC_RECEIVE(out, host_cchat_ctl(answer, 2, out->data, &length));
}

BSC_FN int bsc_close_chat(int fd) { return host_cchat_close(fd); }

/* --- MCP servers of the task --- */

BSC_FN int bsc_open(const char *server) { return host_mcp_open(server, bsc_length(server)); }

BSC_FN int bsc_list(int server, bsc_buffer *out) {
    BSC_RECEIVE(out, host_mcp_list_tools(server, out->data, &length));
}

/* Call a tool by its own name, with a JSON object. What it answers is JSON, errors too. */
BSC_FN int bsc_call(int server, const char *tool, const char *arguments, bsc_buffer *out) {
    BSC_RECEIVE(out, host_mcp_call_tool(server, tool, bsc_length(tool), arguments,
                                        bsc_length(arguments), out->data, &length));
}

BSC_FN int bsc_close(int server) { return host_mcp_close(server); }

BSC_FN int bsc_servers(bsc_buffer *out) {
    BSC_RECEIVE(out, host_mcp_registry_list(out->data, &length));
}

BSC_FN int bsc_server(const char *server, bsc_buffer *out) {
    BSC_RECEIVE(out, host_mcp_registry_get(server, bsc_length(server), out->data, &length));
}

/* --- what is ready --- */

enum { BSC_IN = 0x1, BSC_OUT = 0x4, BSC_ERR = 0x8, BSC_HUP = 0x10 };
typedef struct {
    int32_t fd, events;
} bsc_event;

BSC_FN int bsc_epoll(void) { return host_epoll_create(); }
BSC_FN int bsc_watch(int epoll, int fd, int events) { return host_epoll_ctl(epoll, 1, fd, events); }
BSC_FN int bsc_unwatch(int epoll, int fd) { return host_epoll_ctl(epoll, 3, fd, 0); }
BSC_FN int bsc_close_epoll(int epoll) { return host_epoll_close(epoll); }

/* Wait for some events; how many there are. A negative time is for ever, 0 only looks. */
BSC_FN int bsc_wait(int epoll, bsc_event *events, uint32_t most, int timeout_ms) {
    uint32_t length = most * sizeof *events;
    return host_epoll_wait(epoll, events, &length, timeout_ms);
}

/* Have reads that would wait answer -EAGAIN. */
BSC_FN int bsc_nonblocking(int fd) {
    char flags[] = "{\"set\":[\"O_NONBLOCK\"]}";
    uint32_t length = sizeof flags - 1;
    return host_fd_ctl(fd, 1, flags, &length);
}

/* Read the state of a handle: its kind, its flags, what it is ready for. */
BSC_FN int bsc_status(int fd, bsc_buffer *out) {
    BSC_RECEIVE(out, host_fd_ctl(fd, 4, out->data, &length));
}

/* --- time and chance --- */

BSC_FN int64_t bsc_now_ms(void) { return host_time_now_ms(); }
BSC_FN int64_t bsc_now_s(void) { return host_wall_time_s(); }
BSC_FN int64_t bsc_random(void) { return host_random_i64(); }
BSC_FN void bsc_sleep_ms(int ms) { host_sleep_ms(ms); }

/* --- where it begins --- */

int guest(void);

#ifndef BSC_NO_START
__attribute__((export_name("_start"))) void _start(void) {
    int code = guest();
    if (code) wasi_proc_exit(code);
}
#endif

#endif
