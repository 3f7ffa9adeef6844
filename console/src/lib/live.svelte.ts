/**
 * The page's one stream of events. It says what has changed, so that views ask again, and it tells
 * whether the console answers: after a loss the page connects again by itself and every view asks
 * anew.
 */

import type { Problem } from "./types";

const RETRY_MS = 1500;
// The server pings more often than this; a stream that is silent for longer is dead.
const SILENT_MS = 45_000;

class Live {
  /** "lost": the console does not answer. */
  state = $state<"connecting" | "live" | "lost">("connecting");
  problems = $state.raw<Problem[] | null>(null);
  /** Grows whenever a view should ask again, by kind; "all" after a reconnection. */
  private changes = $state<Record<string, number>>({ all: 0 });
  seriesTick = $state(0);
  private source: EventSource | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private watch: ReturnType<typeof setTimeout> | undefined;
  private was = false;

  start(): void {
    this.stop();
    const source = new EventSource("api/events");
    this.source = source;
    const heard = () => {
      clearTimeout(this.watch);
      this.watch = setTimeout(() => this.lost(), SILENT_MS);
    };
    source.onopen = () => {
      heard();
      this.state = "live";
      if (this.was) this.touch("all");
      this.was = true;
    };
    source.onerror = () => this.lost();
    source.addEventListener("ping", heard);
    source.addEventListener("changed", (event) => {
      heard();
      for (const kind of (JSON.parse(event.data) as { kinds?: string[] }).kinds ?? [])
        this.touch(kind);
    });
    source.addEventListener("series", () => {
      heard();
      this.seriesTick += 1;
    });
    source.addEventListener("problems", (event) => {
      heard();
      this.problems = JSON.parse(event.data) as Problem[];
    });
    heard();
  }

  stop(): void {
    this.source?.close();
    this.source = null;
    clearTimeout(this.retry);
    clearTimeout(this.watch);
  }

  /** The version of what a view shows; reading it in an effect subscribes to changes. */
  version(kinds: string[]): number {
    let sum = this.changes["all"] ?? 0;
    for (const kind of kinds) sum += this.changes[kind] ?? 0;
    return sum;
  }

  touch(kind: string): void {
    this.changes[kind] = (this.changes[kind] ?? 0) + 1;
  }

  private lost(): void {
    this.state = "lost";
    this.stop();
    this.retry = setTimeout(() => this.start(), RETRY_MS);
  }
}

export const live = new Live();
