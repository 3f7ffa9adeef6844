import { expect, it } from "vitest";
import { rows, tree } from "./tree";
import type { TopicRow } from "./types";

const topic = (name: string): TopicRow => ({
  name,
  internal: false,
  partitions: 1,
  replication: 1,
  messages: 10,
  bytes: 100,
  under_replicated: 0,
  rate_msgs: 1,
});

it("puts topics with the same beginning into one folder, and adds up what is in it", () => {
  const branches = tree(["orders.eu.paid", "orders.eu.sent", "orders.us", "users"].map(topic));
  expect(branches.map((branch) => [branch.label, branch.topics, branch.messages])).toEqual([
    ["orders.", 3, 30],
    ["users", 1, 10],
  ]);
  expect(rows(branches, new Set(["orders.", "orders.eu."])).map((branch) => branch.label)).toEqual([
    "orders.", "eu.", "paid", "sent", "us", "users",
  ]);
});

it("makes no folder for a single topic", () => {
  expect(tree([topic("a.b.c")]).map((branch) => [branch.label, branch.topic?.name])).toEqual([
    ["a.b.c", "a.b.c"],
  ]);
});

it("keeps a topic apart from the folder that has its name", () => {
  const branches = tree(["orders", "orders.eu", "orders.us"].map(topic));
  expect(rows(branches, new Set(["orders."])).map((branch) => branch.path)).toEqual([
    "orders", "orders.", "orders.eu", "orders.us",
  ]);
});

it("shows 5,000 topics of one folder", () => {
  const names = Array.from({ length: 5000 }, (_, index) => `load.topic-${index}`);
  const [folder] = tree(names.map(topic));
  expect(folder?.topics).toBe(5000);
});
