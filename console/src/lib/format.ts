/** Numbers, sizes, durations and times as people read them. */

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const NOTHING = "–";

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? NOTHING : whole.format(value);
}

const STEPS: [number, string][] = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** At most three digits and a unit: 999, 12.3 k, 4.6 M. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  const size = Math.abs(value);
  for (const [step, unit] of STEPS) {
    if (size >= step * 0.9995) return `${digits(value / step)} ${unit}`;
  }
  return digits(value);
}

function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95 || Number.isInteger(value)) return whole.format(value);
  return value.toFixed(size < 0.995 ? 2 : 1).replace(/\.0$/, "");
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1023.5 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? whole.format(size) : digits(size)} ${UNITS[unit]}`;
}

export function rate(value: number | null | undefined, unit = ""): string {
  if (value === null || value === undefined) return NOTHING;
  return `${short(value)}${unit}/s`;
}

/** The two largest units of a duration: 3 h 12 min. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NOTHING;
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  const total = Math.round(seconds);
  if (total < 60) return `${total} s`;
  if (total < 3600) return join(Math.floor(total / 60), "min", total % 60, "s");
  if (total < 86400)
    return join(Math.floor(total / 3600), "h", Math.floor((total % 3600) / 60), "min");
  return join(Math.floor(total / 86400), "d", Math.floor((total % 86400) / 3600), "h");
}

function join(large: number, unit: string, small: number, smaller: string): string {
  return small ? `${large} ${unit} ${small} ${smaller}` : `${large} ${unit}`;
}

const pad = (value: number, width = 2) => String(value).padStart(width, "0");

/** Local time, to the millisecond: 2026-03-01 14:05:09.123. */
export function time(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || ms < 0) return NOTHING;
  const date = new Date(ms);
  return `${day(date)} ${clock(date)}.${pad(date.getMilliseconds(), 3)}`;
}

function day(date: Date): string {
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

function clock(date: Date): string {
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** How long ago a moment was, in its largest unit. */
export function ago(ms: number | null | undefined, now = Date.now()): string {
  if (ms === null || ms === undefined || ms < 0) return NOTHING;
  const seconds = (now - ms) / 1000;
  if (seconds < 2) return "just now";
  return `${duration(seconds).split(" ").slice(0, 2).join(" ")} ago`;
}

/** The value of an <input type="datetime-local"> for a moment, and back. */
export function toLocalInput(ms: number): string {
  const date = new Date(ms);
  return `${day(date)}T${clock(date)}`;
}

export function fromLocalInput(text: string): number | null {
  const ms = new Date(text).getTime();
  return Number.isNaN(ms) ? null : ms;
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
