/** What a view shows: asked for when the view opens, when something changed, and now and then. */

import { untrack } from "svelte";
import { Failure } from "./api";
import { live } from "./live.svelte";

const RETRY_MS = 2000;

interface Options {
  /** Kinds of changes after which to ask again. */
  kinds?: () => string[];
  every_ms?: number;
}

export class Resource<T> {
  data = $state.raw<T | null>(null);
  problem = $state.raw<Failure | null>(null);
  loading = $state(true);
  private again = $state(0);

  /** Ask again now. */
  refresh(): void {
    this.again += 1;
  }

  get tick(): number {
    return this.again;
  }
}

/**
 * Keep the answer of a call. To be used while a component is set up; the call is made again when a
 * value that it reads before its first await changes. An answer stays on show while the next one is
 * on its way, and while the console is away.
 */
export function resource<T>(
  ask: (signal: AbortSignal) => Promise<T> | null,
  { kinds = () => [], every_ms = 10_000 }: Options = {},
): Resource<T> {
  const kept = new Resource<T>();
  $effect(() => {
    void kept.tick;
    void live.version(kinds());
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;

    const go = (first: boolean) => {
      const answer = first ? ask(stop.signal) : untrack(() => ask(stop.signal));
      if (answer === null) return;
      untrack(() => {
        kept.loading = true;
      });
      answer
        .then((data) => {
          if (stop.signal.aborted) return;
          kept.data = data;
          kept.problem = null;
          kept.loading = false;
          timer = setTimeout(next, every_ms);
        })
        .catch((problem: unknown) => {
          if (stop.signal.aborted) return;
          kept.loading = false;
          kept.problem =
            problem instanceof Failure ? problem : new Failure(0, "page", String(problem));
          if (kept.problem.passing) timer = setTimeout(next, RETRY_MS);
        });
    };
    // A hidden page asks nothing; it asks at once when it is seen again.
    const next = () => {
      if (!document.hidden) return go(false);
      document.addEventListener("visibilitychange", () => go(false), {
        once: true,
        signal: stop.signal,
      });
    };
    go(true);
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  });
  return kept;
}
