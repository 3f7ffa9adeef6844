/** Keys: single ones, and two in a row that start with "g" (go to). */

const GO_WITHIN_MS = 1200;

export interface Shortcut {
  keys: string;
  what: string;
  run: () => void;
}

function writing(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** Listen until the returned function is called. */
export function listen(shortcuts: Shortcut[]): () => void {
  let first = "";
  let until = 0;
  const pressed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || writing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const keys = first && Date.now() < until ? `${first} ${event.key}` : event.key;
    first = "";
    const found = shortcuts.find((shortcut) => shortcut.keys === keys);
    if (found) {
      event.preventDefault();
      found.run();
    } else if (event.key === "g") {
      first = "g";
      until = Date.now() + GO_WITHIN_MS;
    }
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}
