/** The pages in the order of the menu, with the keys that lead to them. */

import type { IconName } from "../components/Icon.svelte";

export interface Page {
  path: string;
  title: string;
  icon: IconName;
  key: string;
  /** A feature of the session without which the page has nothing to show. */
  needs?: string;
}

export const PAGES: Page[] = [
  { path: "", title: "Overview", icon: "overview", key: "o" },
  { path: "cluster", title: "Cluster", icon: "cluster", key: "c" },
  { path: "topics", title: "Topics", icon: "topics", key: "t" },
  { path: "groups", title: "Groups", icon: "groups", key: "g" },
  { path: "transactions", title: "Transactions", icon: "transactions", key: "x" },
  { path: "schemas", title: "Schemas", icon: "schemas", key: "s", needs: "registry" },
  { path: "pipelines", title: "Pipelines", icon: "pipelines", key: "p" },
  { path: "dead-letters", title: "Dead letters", icon: "letters", key: "d" },
  { path: "security", title: "Security", icon: "security", key: "u" },
];
