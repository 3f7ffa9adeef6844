/** Keys, values and headers of messages as text. */

import type { Content, Message } from "./types";

/** One line for a list. */
export function oneLine(content: Content | null, limit = 400): string {
  if (content === null) return "null";
  const text = content.text ?? content.hex ?? JSON.stringify(content.json);
  return (text.length > limit ? `${text.slice(0, limit)}…` : text).replace(/\s+/g, " ");
}

/**
 * The whole of it, for reading and editing. The text of JSON comes along where its numbers have more
 * digits than JavaScript's; that is the one to keep.
 */
export function whole(content: Content | null): string {
  if (content === null) return "";
  return content.text ?? content.hex ?? JSON.stringify(content.json, null, 2);
}

export type Encoding = "text" | "json" | "hex" | "schema" | "null";

/** How to send content that was read, so that the same bytes are written again. */
export function encodingOf(content: Content | null): Encoding {
  if (content === null) return "null";
  if (content.schema_id !== undefined && content.schema_id !== null && content.json !== undefined)
    return "schema";
  if (content.json !== undefined) return "json";
  return content.text !== undefined ? "text" : "hex";
}

export const idOf = (message: Message) => `${message.partition}/${message.offset}`;

/** A file for the browser to save. */
export function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
