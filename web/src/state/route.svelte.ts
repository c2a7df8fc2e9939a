// Where the page is: the fragment, so that no address of a screen is one of the API.

type Place = { parts: string[]; query: URLSearchParams };

function place(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Route {
  #now = $state.raw(place());
  /** Asked before the page is left; false keeps it. */
  #guards = new Set<() => boolean>();
  #address = location.hash;

  constructor() {
    addEventListener("hashchange", () => this.#moved());
  }

  get parts(): string[] {
    return this.#now.parts;
  }

  get query(): URLSearchParams {
    return this.#now.query;
  }

  /** Go to a screen: `go("servers", "fs")`. */
  go(...parts: string[]): void {
    location.hash = href(...parts);
  }

  /** Stay on the page until `leaves` says yes: for forms with something typed. */
  hold(leaves: () => boolean): () => void {
    this.#guards.add(leaves);
    return () => this.#guards.delete(leaves);
  }

  #moved(): void {
    // A link's code is no place: the session takes it away.
    if (location.hash === this.#address || location.hash.startsWith("#code=")) return;
    if (![...this.#guards].every((leaves) => leaves())) {
      history.replaceState(null, "", this.#address || "#/");
      return;
    }
    this.#address = location.hash;
    this.#now = place();
  }
}

export function href(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export const route = new Route();
