/* Print an answer as it arrives: a chunk at a time, and something else in between.
 *
 *     bascule run streaming.wasm --model rehearsal
 */
#include "bascule.h"

int guest(void) {
    int chat = bsc_chat();
    if (chat < 0) return bsc_failed("cchat_create", chat);
    bsc_say(chat, "user", bsc_argument(1, "What can you do?"));
    int answer = bsc_send(chat, BSC_STREAM); /* returns at once */
    if (answer < 0) return bsc_failed("cchat_send", answer);

    int epoll = bsc_epoll(), chunks = 0;
    bsc_nonblocking(answer);
    bsc_watch(epoll, answer, BSC_IN);
    bsc_buffer chunk = {0}, text = {0};
    for (;;) {
        bsc_event event;
        int ready = bsc_wait(epoll, &event, 1, 10000);
        if (ready < 0) return bsc_failed("epoll_wait", ready);
        if (!ready) return bsc_failed("the model", -BSC_ETIMEDOUT);
        int length = bsc_receive(answer, &chunk);
        if (length == -BSC_EAGAIN) continue; /* here the program could do something else */
        if (length < 0) return bsc_failed("cchat_recv", length);
        if (!length) break;
        chunks++;
        bsc_clear(&text);
        if (!bsc_read(chunk.data, "choices.0.delta.content", &text)) bsc_print(text.data);
        if (bsc_find(chunk.data, "error")) return bsc_log(BSC_ERROR, chunk.data), 1;
    }
    bsc_clear(&text);
    bsc_add(&text, "\nchunks: "), bsc_add(&text, chunks > 1 ? "several" : "one");
    bsc_add(&text, "\n");
    bsc_close_epoll(epoll);
    bsc_close_chat(answer);
    return bsc_print(text.data);
}
