// bascule run hello.wasm
import { log, print } from "./bascule";

print("Hello from AssemblyScript!\n");
log(2, "the guest has greeted");
