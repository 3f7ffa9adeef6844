/** Topics as a tree by the parts of their names: orders.eu.paid lies in orders, then in eu. */

import type { TopicRow } from "./types";

export interface Branch {
  /** The folded parts of the name that lead here, with their separators. */
  path: string;
  label: string;
  depth: number;
  topics: number;
  messages: number;
  bytes: number;
  rate: number;
  topic: TopicRow | null;
  children: Branch[];
}

const SEPARATOR = /[._-]/;

export function tree(topics: TopicRow[]): Branch[] {
  const root = branch("", "", -1);
  for (const topic of topics) {
    let at = root;
    for (const part of parts(topic.name)) {
      const path = at.path + part;
      let next = at.children.find((child) => child.path === path && child.topic === null);
      if (!next) {
        next = branch(path, part, at.depth + 1);
        at.children.push(next);
      }
      at = next;
    }
    const label = topic.name.slice(at.path.length);
    at.children.push({ ...branch(topic.name, label, at.depth + 1), topic });
  }
  add(root);
  return root.children.map((child) => fold(child, 0));
}

/** The folders of a name: every part that ends with a separator, except leading ones. */
function parts(name: string): string[] {
  const found: string[] = [];
  let start = 0;
  for (let at = 1; at < name.length - 1; at += 1) {
    if (SEPARATOR.test(name[at] ?? "") && at > start) {
      found.push(name.slice(start, at + 1));
      start = at + 1;
    }
  }
  return found;
}

function branch(path: string, label: string, depth: number): Branch {
  return {
    path,
    label,
    depth,
    topics: 0,
    messages: 0,
    bytes: 0,
    rate: 0,
    topic: null,
    children: [],
  };
}

function add(node: Branch): void {
  if (node.topic) {
    node.topics = 1;
    node.messages = node.topic.messages ?? 0;
    node.bytes = node.topic.bytes ?? 0;
    node.rate = node.topic.rate_msgs ?? 0;
  }
  for (const child of node.children) {
    add(child);
    node.topics += child.topics;
    node.messages += child.messages;
    node.bytes += child.bytes;
    node.rate += child.rate;
  }
}

/** A folder with a single entry is no folder: its name joins that of the entry. */
function fold(node: Branch, depth: number): Branch {
  let at = node;
  let label = node.label;
  while (at.topic === null && at.children.length === 1) {
    at = at.children[0] as Branch;
    label += at.label;
  }
  return { ...at, label, depth, children: at.children.map((child) => fold(child, depth + 1)) };
}

/** The rows on show: a folder's entries only where it is open. */
export function rows(branches: Branch[], open: ReadonlySet<string>): Branch[] {
  const shown: Branch[] = [];
  const visit = (node: Branch) => {
    shown.push(node);
    if (node.topic === null && open.has(node.path)) node.children.forEach(visit);
  };
  branches.forEach(visit);
  return shown;
}
