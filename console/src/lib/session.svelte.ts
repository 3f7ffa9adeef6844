/** Who uses the page, what the cluster can do, and what this person may do. */

import { get, post, remove, whenSignedOut } from "./api";
import type { Session } from "./types";

class SessionState {
  now = $state.raw<Session | null>(null);
  signIn = $state(false);

  async load(): Promise<void> {
    const session = await get<Session>("session");
    this.now = session;
    this.signIn = !(session.signed_in ?? (session.auth === "none" || session.user !== null));
  }

  async enter(user: string, password: string): Promise<void> {
    await post("session", { user, password });
    await this.load();
  }

  async leave(): Promise<void> {
    await remove("session");
    await this.load();
  }

  get readOnly(): boolean {
    return this.now?.read_only ?? true;
  }

  /**
   * Whether to offer an operation (in Kafka's words) on a resource, or on the cluster: what one may
   * not do is not on the page. Where a broker does not tell, the attempt will.
   */
  may(operation: string, on: { operations?: string[] | null } | null = this.now): boolean {
    if (this.readOnly) return false;
    return on?.operations ? on.operations.includes(operation) : true;
  }

  has(feature: string): boolean {
    return this.now?.features[feature] ?? false;
  }
}

export const session = new SessionState();

whenSignedOut(() => {
  session.signIn = true;
});
