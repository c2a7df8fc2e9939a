/* Ask a model one question and print its answer.
 *
 *     bascule run chat.wasm --model rehearsal --arg "What can you do?"
 */
#include "bascule.h"

int guest(void) {
    int chat = bsc_chat();
    if (chat < 0) return bsc_failed("cchat_create", chat);
    bsc_say(chat, "system", "Answer in one sentence.");
    bsc_say(chat, "user", bsc_argument(1, "What can you do?"));

    int answer = bsc_send(chat, BSC_METRICS);
    if (answer < 0) return bsc_failed("cchat_send", answer);
    bsc_buffer body = {0}, text = {0}, usage = {0};
    int length = bsc_receive(answer, &body);
    if (length < 0) return bsc_failed("cchat_recv", length);

    /* A model that fails is no error number: the body says what happened. */
    if (bsc_read(body.data, "choices.0.message.content", &text) < 0) {
        bsc_read(body.data, "error.message", &text);
        bsc_log(BSC_ERROR, text.data);
        return 1;
    }
    bsc_add(&text, "\n");
    bsc_print(text.data);
    if (bsc_metrics(answer, &usage) > 0) bsc_log(BSC_INFO, usage.data);
    bsc_close_chat(answer);
    bsc_close_chat(chat);
    return 0;
}
