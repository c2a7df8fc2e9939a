// bascule run call.wasm --task demo
import { call, close, open, print } from "./bascule";

const notes = open("notes");
print(call(notes, "read_note", '{"name": "welcome"}') + "\n");
close(notes);
