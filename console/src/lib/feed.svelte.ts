/** The messages of a view: read page by page, followed live, or found by a search. */

import { address, explain, get, post, remove, segment } from "./api";
import type { Message, Messages } from "./types";

/** More than that many rows are not kept: the oldest make room. */
export const KEPT = 100_000;
const PAGE = 500;
const RETRY_MS = 1500;

export interface Progress {
  scanned: number;
  total: number | null;
  bytes: number;
  found: number;
  elapsed_ms: number;
}

export interface Wanted {
  topic: string;
  mode: "browse" | "live" | "search";
  partition: string;
  from: string;
  until: string;
  key: string;
  filter: string;
}

export class Feed {
  messages = $state.raw<Message[]>([]);
  problem = $state("");
  /** "waiting": connected, and nothing more to do; "ended": all there is was read. */
  state = $state<"idle" | "reading" | "waiting" | "ended">("idle");
  next = $state<string | null>(null);
  scanned = $state(0);
  /** Messages that a live view was not given, because more came than anybody can follow. */
  skipped = $state(0);
  progress = $state.raw<Progress | null>(null);
  search = $state<string | null>(null);
  reason = $state("");
  paused = $state(false);
  /** Messages that came while paused. */
  held = $state(0);
  private aside: Message[] = [];
  private arrived: Message[] = [];
  private frame = 0;
  private source: EventSource | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private stop = new AbortController();

  start(wanted: Wanted): void {
    this.end();
    this.stop = new AbortController();
    this.messages = [];
    this.problem = this.reason = "";
    this.next = this.search = this.progress = null;
    this.scanned = this.held = this.skipped = 0;
    this.aside = [];
    this.paused = false;
    if (wanted.mode === "live") this.tail(wanted);
    else if (wanted.mode === "search") void this.find(wanted);
    else void this.read(wanted, null);
  }

  /** Stop whatever is under way; a search's result stays with the console for its export. */
  end(): void {
    this.stop.abort();
    this.source?.close();
    this.source = null;
    clearTimeout(this.retry);
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.arrived = [];
  }

  async more(wanted: Wanted): Promise<void> {
    if (this.state === "waiting" && this.next !== null) await this.read(wanted, this.next);
  }

  private async read(wanted: Wanted, cursor: string | null): Promise<void> {
    const { signal } = this.stop;
    this.state = "reading";
    try {
      const page = await get<Messages>(
        `topics/${segment(wanted.topic)}/messages`,
        {
          partition: wanted.partition,
          from: cursor ?? wanted.from,
          key: wanted.key,
          filter: wanted.filter,
          limit: PAGE,
        },
        signal,
      );
      // From the end, the view goes back in time: the newest message is the first row.
      const isNewestFirst = wanted.from.startsWith("end:");
      const came = isNewestFirst ? page.messages.toReversed() : page.messages;
      this.messages = [...this.messages, ...came];
      this.scanned += page.scanned;
      this.next = isNewestFirst ? page.previous : page.next;
      this.state = this.next === null || this.messages.length >= KEPT ? "ended" : "waiting";
    } catch (failure) {
      if (signal.aborted) return;
      this.problem = explain(failure);
      this.state = "ended";
    }
  }

  private tail(wanted: Wanted): void {
    this.state = "waiting";
    const url = address(`topics/${segment(wanted.topic)}/tail`, {
      filter: wanted.filter,
      partition: wanted.partition,
    });
    const source = new EventSource(url);
    this.source = source;
    source.onopen = () => {
      this.problem = "";
    };
    source.addEventListener("messages", (event) => this.take(JSON.parse(event.data) as Message[]));
    source.addEventListener("skipped", (event) => {
      this.skipped += (JSON.parse(event.data) as { messages: number }).messages;
    });
    source.addEventListener("failed", (event) => {
      this.problem = (JSON.parse(event.data) as { message: string }).message;
      source.close();
    });
    source.onerror = () => {
      // A filter that is refused is an answer, but an EventSource does not show it: ask plainly.
      source.close();
      get(
        `topics/${segment(wanted.topic)}/messages`,
        { from: "end:-1", limit: 1, filter: wanted.filter },
        this.stop.signal,
      ).then(
        () => (this.retry = setTimeout(() => this.tail(wanted), RETRY_MS)),
        (failure: unknown) => {
          if (this.stop.signal.aborted) return;
          this.problem = explain(failure);
          this.retry = setTimeout(() => this.tail(wanted), RETRY_MS * 2);
        },
      );
    };
  }

  private async find(wanted: Wanted): Promise<void> {
    this.state = "reading";
    const { signal } = this.stop;
    try {
      const { id } = await post<{ id: string }>("searches", {
        topic: wanted.topic,
        ...(wanted.partition ? { partitions: [Number(wanted.partition)] } : {}),
        from: wanted.from,
        ...(wanted.until ? { until: wanted.until } : {}),
        filter: wanted.filter,
        limit: 10_000,
      });
      if (signal.aborted) return void remove(`searches/${segment(id)}`).catch(() => {});
      this.search = id;
      const source = new EventSource(address(`searches/${segment(id)}/events`));
      this.source = source;
      source.addEventListener("progress", (event) => {
        this.progress = JSON.parse(event.data) as Progress;
      });
      source.addEventListener("found", (event) => this.take(JSON.parse(event.data) as Message[]));
      source.addEventListener("done", (event) => {
        this.reason = (JSON.parse(event.data) as { reason: string }).reason;
        this.finish();
      });
      source.addEventListener("failed", (event) => {
        this.problem = (JSON.parse(event.data) as { message: string }).message;
        this.finish();
      });
      source.onerror = () => {
        if (this.state !== "reading") return;
        this.problem = "The connection to the search was lost; start it again.";
        this.finish();
      };
    } catch (failure) {
      if (signal.aborted) return;
      this.problem = explain(failure);
      this.state = "ended";
    }
  }

  async cancel(): Promise<void> {
    if (this.search !== null) await remove(`searches/${segment(this.search)}`);
    this.reason = "cancelled";
    this.finish();
  }

  private finish(): void {
    this.source?.close();
    this.source = null;
    this.state = "ended";
  }

  /** Rows are added once a frame, however often messages arrive. */
  private take(came: Message[]): void {
    this.arrived.push(...came);
    if (!this.frame) this.frame = requestAnimationFrame(() => this.show());
  }

  private show(): void {
    this.frame = 0;
    const came = this.arrived;
    this.arrived = [];
    if (this.paused) {
      this.aside = this.aside.concat(came).slice(-KEPT);
      this.held = this.aside.length;
    } else this.messages = this.messages.concat(came).slice(-KEPT);
  }

  pause(paused: boolean): void {
    this.paused = paused;
    if (!paused) {
      this.messages = this.messages.concat(this.aside).slice(-KEPT);
      this.aside = [];
      this.held = 0;
    }
  }

  clear(): void {
    this.messages = [];
  }
}
