/** Calls of the console's API. Every address is relative to the page. */

export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string | null = null,
  ) {
    super(message);
  }

  /** Nobody answered, or the console could not reach the cluster: worth trying again. */
  get passing(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

type Values = Record<string, string | number | boolean | null | undefined>;

export function address(path: string, values: Values = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "" && value !== false)
      query.set(name, String(value));
  }
  const text = query.toString();
  return `api/${path}${text ? `?${text}` : ""}`;
}

/** A name as one segment of a path. */
export const segment = encodeURIComponent;

let signedOut: () => void = () => {};

/** Be told when the session has ended. */
export function whenSignedOut(call: () => void): void {
  signedOut = call;
}

async function call<T>(
  method: string,
  url: string,
  body: unknown,
  signal?: AbortSignal,
): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET") headers["X-Moldau-Console"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(url, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ?? null,
      credentials: "same-origin",
    });
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw new Failure(0, "unreachable", "The console does not answer.", "It is tried again.");
  }
  const text = await answer.text();
  let parsed: unknown = null;
  try {
    parsed = text ? JSON.parse(text) : null;
  } catch {
    if (answer.ok) throw new Failure(answer.status, "not_json", "The answer is not JSON.");
  }
  if (answer.ok) return parsed as T;
  if (answer.status === 401 && !url.startsWith("api/session")) signedOut();
  const error = (parsed as { error?: { code?: string; message?: string; hint?: string } } | null)
    ?.error;
  throw new Failure(
    answer.status,
    error?.code ?? "http",
    error?.message ?? `The console answered with status ${answer.status}.`,
    error?.hint ?? null,
  );
}

export const get = <T>(path: string, values?: Values, signal?: AbortSignal) =>
  call<T>("GET", address(path, values), undefined, signal);
export const post = <T>(path: string, body: unknown = {}) => call<T>("POST", address(path), body);
export const put = <T>(path: string, body: unknown) => call<T>("PUT", address(path), body);
export const patch = <T>(path: string, body: unknown) => call<T>("PATCH", address(path), body);
export const remove = <T>(path: string, values?: Values, body?: unknown) =>
  call<T>("DELETE", address(path, values), body);

export function explain(problem: unknown): string {
  if (problem instanceof Failure)
    return problem.hint ? `${problem.message} ${problem.hint}` : problem.message;
  return problem instanceof Error ? problem.message : String(problem);
}
