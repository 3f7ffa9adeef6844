import { describe, expect, it } from "vitest";
import { ago, bytes, count, duration, fromLocalInput, rate, short, time, toLocalInput } from "./format";

describe("numbers", () => {
  it("are shown with few digits and a unit", () => {
    expect([0, 7, 999, 1000, 12_345, 999_600, 4_560_000].map(short)).toEqual([
      "0", "7", "999", "1 k", "12.3 k", "1 M", "4.6 M",
    ]);
    expect(short(0.25)).toBe("0.25");
    expect(rate(1500)).toBe("1.5 k/s");
  });

  it("that are not known are a dash", () => {
    expect([count(null), short(undefined), bytes(null), duration(null), time(null)]).toEqual(
      Array(5).fill("–"),
    );
  });
});

describe("sizes", () => {
  it("are binary", () => {
    expect([0, 1023, 1024, 1536, 1048576 * 10].map(bytes)).toEqual([
      "0 B", "1,023 B", "1 KiB", "1.5 KiB", "10 MiB",
    ]);
  });
});

describe("durations", () => {
  it("have their two largest units", () => {
    expect([0, 0.04, 2.5, 59.7, 60, 3725, 90_000].map(duration)).toEqual([
      "0 s", "40 ms", "2.5 s", "1 min", "1 min", "1 h 2 min", "1 d 1 h",
    ]);
  });

  it("since a moment have one", () => {
    expect(ago(0, 500)).toBe("just now");
    expect(ago(0, 3_725_000)).toBe("1 h ago");
  });
});

it("gives a time to a field for it and takes the same one back", () => {
  const moment = new Date(2026, 2, 1, 14, 5, 9).getTime();
  expect(fromLocalInput(toLocalInput(moment))).toBe(moment);
  expect(fromLocalInput("nonsense")).toBeNull();
});
