// Light or dark: the system's word, unless the person said otherwise.

export type Theme = "system" | "light" | "dark";
const KEY = "bascule.theme";

class Choice {
  #now = $state<Theme>(stored());

  constructor() {
    this.#apply();
  }

  get now(): Theme {
    return this.#now;
  }

  set now(theme: Theme) {
    this.#now = theme;
    localStorage.setItem(KEY, theme);
    this.#apply();
  }

  #apply(): void {
    document.documentElement.dataset["theme"] = this.#now;
  }
}

function stored(): Theme {
  const found = localStorage.getItem(KEY);
  return found === "light" || found === "dark" ? found : "system";
}

export const theme = new Choice();
