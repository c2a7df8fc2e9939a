/* The least a guest can do: greet, and leave a line in the log.
 *
 *     bascule run hello.wasm --arg Ada
 */
#include "bascule.h"

int guest(void) {
    bsc_buffer line = {0};
    bsc_add(&line, "Hello, ");
    bsc_add(&line, bsc_argument(1, "world"));
    bsc_add(&line, "!\n");
    bsc_print(line.data);
    bsc_log(BSC_INFO, "the guest has greeted");
    return 0;
}
