/** Short notes about what was done, read out by screen readers. */

import { explain } from "./api";

export interface Toast {
  id: number;
  kind: "done" | "failed";
  text: string;
}

const SHOWN_MS = 6000;

class Toasts {
  list = $state<Toast[]>([]);
  private last = 0;

  private add(kind: Toast["kind"], text: string, shown_ms: number): void {
    const id = (this.last += 1);
    this.list.push({ id, kind, text });
    setTimeout(() => this.drop(id), shown_ms);
  }

  done(text: string): void {
    this.add("done", text, SHOWN_MS);
  }

  failed(problem: unknown): void {
    this.add("failed", explain(problem), SHOWN_MS * 2);
  }

  drop(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }
}

export const toasts = new Toasts();
