/** Addresses of the pages of what a problem is about. */

import { link } from "./router.svelte";

export function linkTo(where: { kind: string; name: string }): string | null {
  switch (where.kind) {
    case "topic":
      return link(["topics", where.name, "partitions"]);
    case "group":
      return link(["groups", where.name]);
    case "broker":
    case "cluster":
      return link(["cluster"]);
    case "transaction":
      return link(["transactions", where.name]);
    case "schema":
    case "subject":
      return link(["schemas", where.name]);
    case "pipeline":
      return link(["pipelines", where.name]);
    case "dead-letters":
    case "dead_letters":
    case "dead-letter":
      return where.name ? link(["dead-letters", where.name]) : link(["dead-letters"]);
    default:
      return null;
  }
}

export function stateTone(state: string): "plain" | "good" | "warn" | "bad" {
  const text = state.toLowerCase().replace(/[^a-z]/g, "");
  if (/^(stable|running|ongoing|completecommit|completeabort|ok|assigning)$/.test(text))
    return "good";
  if (/^(failed|lost|dead|error|unreachable)$/.test(text)) return "bad";
  if (/(prepar|rebalanc|reconcil|complet|restart|waiting|starting|stale)/.test(text)) return "warn";
  return "plain";
}
