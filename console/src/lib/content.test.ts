import { expect, it } from "vitest";
import { encodingOf, oneLine, whole } from "./content";

it("keeps the digits that JavaScript would lose", () => {
  const long = { text: '{"id":12345678901234567890}', json: { id: 12345678901234567000 }, encoding: "json", bytes: 27 };
  expect(whole(long)).toContain("12345678901234567890");
  expect(oneLine(long)).toContain("12345678901234567890");
  expect(encodingOf(long)).toBe("json");
});

it("sends content again as it was read", () => {
  expect(encodingOf(null)).toBe("null");
  expect(encodingOf({ json: {}, encoding: "avro", schema_id: 3, bytes: 8 })).toBe("schema");
  expect(encodingOf({ hex: "00ff", encoding: "hex", bytes: 2 })).toBe("hex");
  expect(encodingOf({ text: "x", encoding: "text", bytes: 1 })).toBe("text");
});

it("fits a list's row", () => {
  expect(oneLine({ text: `a\n b${"c".repeat(500)}`, encoding: "text", bytes: 504 }, 10)).toBe("a bcccccc…");
  expect(oneLine(null)).toBe("null");
});
