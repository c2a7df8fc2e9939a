// The conversation of the playground: kept while the page is open, whichever screen is shown.

import { Chat } from "../../chat/chat.svelte";

export const chat = new Chat();
