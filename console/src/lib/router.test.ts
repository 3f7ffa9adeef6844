import { expect, it } from "vitest";
import { link, parse } from "./router.svelte";

it("reads back every name that an address was made of", () => {
  for (const name of ["orders", "a/b", "ä ?#%&+", "100%"]) {
    const place = parse(link(["topics", name], { filter: "value.x > 1 AND key = 'a&b'", q: "" }));
    expect(place).toEqual({
      path: ["topics", name],
      query: { filter: "value.x > 1 AND key = 'a&b'" },
    });
  }
});

it("takes an address that somebody mistyped", () => {
  expect(parse("#topics/100%?q")).toEqual({ path: ["topics", "100%"], query: { q: "" } });
  expect(parse("")).toEqual({ path: [], query: {} });
});
