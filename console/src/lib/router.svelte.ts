/**
 * The place that the page shows: a path and its query behind the "#" of the address, so that every
 * view and filter can be shared, and the same files work below any folder of a server.
 */

export interface Place {
  path: string[];
  query: Record<string, string>;
}

export function parse(hash: string): Place {
  const text = hash.replace(/^#?\/?/, "");
  const [path = "", query = ""] = split(text);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function split(text: string): [string, string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** A hand-edited address may hold a stray "%". */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

type Query = Record<string, string | number | boolean | null | undefined>;

export function link(path: (string | number)[], query: Query = {}): string {
  const values = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "" && value !== false)
      values.set(name, String(value));
  }
  const text = values.toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}

const KEPT = "moldau.place";

class Router {
  place = $state.raw<Place>(parse(typeof location === "undefined" ? "" : location.hash));

  /** What the page is searched for. */
  get wanted(): string {
    return (this.place.query["q"] ?? "").toLowerCase();
  }

  /** Remember the place while another site asks who this is. */
  keep(): void {
    try {
      sessionStorage.setItem(KEPT, location.hash);
    } catch {
      // Without storage one arrives at the first page.
    }
  }

  /** Return to the place that was kept, once, unless the address names another. */
  comeBack(): void {
    let kept: string | null = null;
    try {
      kept = sessionStorage.getItem(KEPT);
      sessionStorage.removeItem(KEPT);
    } catch {
      return;
    }
    if (kept?.startsWith("#") && !this.place.path.length) {
      history.replaceState(null, "", kept);
      this.place = parse(kept);
    }
  }

  listen(): () => void {
    const moved = () => {
      this.place = parse(location.hash);
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }

  go(path: (string | number)[], query: Query = {}): void {
    location.hash = link(path, query);
  }

  /** Change some values of the query in place: a filter is no step to go back over. */
  set(changes: Query): void {
    const next = link(this.place.path, { ...this.place.query, ...changes });
    history.replaceState(null, "", next);
    this.place = parse(next);
  }
}

export const router = new Router();
