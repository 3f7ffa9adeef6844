import { expect, it } from "vitest";
import { diff } from "./diff";

const said = (before: string, after: string) =>
  diff(before, after).map(({ kind, text }) => `${{ same: " ", added: "+", removed: "-" }[kind]}${text}`);

it("shows what was added and removed around what stayed", () => {
  expect(said("a\nb\nc", "a\nx\nc\nd")).toEqual([" a", "-b", "+x", " c", "+d"]);
});

it("shows nothing else for equal texts", () => {
  expect(said("a\nb", "a\nb")).toEqual([" a", " b"]);
});

it("numbers the lines of both sides", () => {
  expect(diff("a\nb", "b").map(({ left, right }) => [left, right])).toEqual([[1, null], [2, 1]]);
});
