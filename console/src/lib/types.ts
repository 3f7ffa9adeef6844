/** The shapes of the console's API, as far as the page uses them (docs/api.md describes all). */

export interface Session {
  user: string | null;
  auth: "none" | "password" | "oidc";
  read_only: boolean;
  cluster_id: string | null;
  bootstrap: string;
  version: string;
  signed_in?: boolean;
  features: Record<string, boolean>;
  operations: string[] | null;
}

export interface Problem {
  severity: "error" | "warning" | "info";
  what: string;
  where: { kind: string; name: string };
  since_ms?: number | null;
  hint?: string | null;
}

export interface Overview {
  problems: Problem[];
  counts: Record<string, number>;
  rates: { in_msgs: number | null; in_bytes: number | null; out_bytes: number | null };
}

export interface Broker {
  id: number;
  host: string;
  port: number;
  rack: string | null;
  leaders: number;
  replicas: number;
  under_replicated: number;
  bytes: number | null;
}

export interface Reassignment {
  topic: string;
  partition: number;
  replicas: number[];
  adding: number[];
  removing: number[];
}

export interface Cluster {
  cluster_id: string;
  controller: number | null;
  brokers: Broker[];
  reassignments: Reassignment[];
}

export interface TopicRow {
  name: string;
  internal: boolean;
  partitions: number;
  replication: number;
  messages: number | null;
  bytes: number | null;
  under_replicated: number;
  rate_msgs: number | null;
}

export interface Partition {
  partition: number;
  leader: number | null;
  epoch: number | null;
  replicas: number[];
  in_sync: number[];
  eligible?: number[];
  start: number | null;
  end: number | null;
  bytes: number | null;
}

export interface Setting {
  name: string;
  value: string | null;
  source: string;
  is_default: boolean;
  read_only: boolean;
  sensitive: boolean;
  type: string;
  documentation: string | null;
}

export interface Topic {
  name: string;
  id: string | null;
  internal: boolean;
  partitions: Partition[];
  configs: Setting[];
  groups: { group: string; lag: number | null }[];
  subjects: { subject: string; type: string; version: number }[];
  operations: string[] | null;
}

export interface Content {
  text?: string;
  json?: unknown;
  hex?: string;
  encoding: string;
  schema_id?: number | null;
  bytes: number;
  /** Less is here than there is. */
  truncated?: boolean;
  /** Why it could not be read by the schema that it names. */
  problem?: string;
}

export interface Message {
  partition: number;
  offset: number;
  timestamp: number;
  timestamp_type: string;
  key: Content | null;
  value: Content | null;
  headers: [string, Content | null][];
  size: number;
}

export interface Messages {
  messages: Message[];
  next: string | null;
  previous: string | null;
  scanned: number;
  took_ms: number;
}

export interface GroupRow {
  group: string;
  kind: string;
  state: string;
  members: number | null;
  topics: string[];
  lag: number | null;
  lag_s: number | null;
}

export interface GroupPartition {
  topic: string;
  partition: number;
  committed: number | null;
  end: number | null;
  lag: number | null;
  lag_s: number | null;
  member: string | null;
  trend_per_s: number | null;
  drain_s: number | null;
}

export interface Group {
  group: string;
  kind: string;
  state: string;
  coordinator: number | null;
  assignor: string | null;
  epoch: number | null;
  members: {
    id: string;
    client_id: string;
    host: string;
    instance_id: string | null;
    partitions: [string, number][];
  }[];
  partitions: GroupPartition[];
  history: { at_ms: number; cause: string; duration_ms: number | null }[];
  share: { partitions: SharePartition[] } | null;
  lag: number | null;
  lag_s: number | null;
  operations: string[] | null;
}

/** Why a group is behind. */
export interface Why {
  summary: string;
  reasons: { what: string; hint: string }[];
}

export interface SharePartition {
  topic: string;
  partition: number;
  start: number | null;
  end: number | null;
  lag: number | null;
  lag_s: number | null;
  in_flight: number | null;
  waiting: number | null;
  redelivered: number | null;
  dead: number | null;
  trend_per_s: number | null;
  drain_s: number | null;
}

export interface OffsetChange {
  topic: string;
  partition: number;
  from: number | null;
  to: number;
}

export interface Transaction {
  id: string;
  state: string;
  producer_id: number;
  coordinator: number;
  open_s: number | null;
  epoch?: number;
  started_ms?: number | null;
  timeout_ms?: number | null;
  partitions?: [string, number][];
  operations?: string[] | null;
}

export interface Subjects {
  schemas: SubjectRow[];
  operations: string[] | null;
}

export interface SubjectRow {
  subject: string;
  type: string;
  version: number;
  id: number;
}

export interface SchemaVersion {
  subject: string;
  version: number;
  id: number;
  type: string;
  schema: string;
  references?: { name: string; subject: string; version: number }[];
}

export interface Subject {
  subject: string;
  versions: number[];
  compatibility: string | null;
  mode: string | null;
  latest: SchemaVersion;
  operations: string[] | null;
}

/** What went wrong in a pipeline, and the message that caused it, if that is known. */
export interface PipelineError {
  message: string;
  at_ms: number;
  record?: { topic: string; partition: number; offset: number } | null;
}

export interface Sink {
  name: string;
  state: string;
  rows_per_s: number | null;
  batch_ms: number | null;
  lag: number | null;
  dead_letters: number | null;
  last_error: PipelineError | null;
  type: string;
  target: string | null;
  path: string | null;
}

export interface Pipeline {
  name: string;
  state: string;
  sinks: Sink[];
  sql: Record<string, string>;
  seen_ms: number;
  last_error: PipelineError | null;
  more: Record<string, unknown>;
}

export interface LakeTable {
  pipeline: string;
  sink: string;
  type: string;
  path: string;
}

export interface LakeDetail {
  rows: number | null;
  files: number;
  bytes: number;
  version: number;
  versions: { version: number; at_ms?: number | null; operation?: string | null }[];
  schema: { name: string; type: string; nullable?: boolean }[];
  preview: { columns: string[]; rows: unknown[][]; is_hidden: boolean; note: string };
}

export interface DeadLetterTopic {
  topic: string;
  origin: string[];
  count: number;
  reasons: { reason: string; count: number }[];
}

export interface DeadLetter extends Message {
  reason: string;
  /** The offset is -1 for what brokers never let in. */
  origin: { topic: string; partition: number; offset: number };
  redriven: boolean;
  /** Whose letter it is: that of a pipeline, of a share group, or of the check against schemas. */
  kind: "pipeline" | "share" | "quarantine";
  of: string;
  may_redrive: boolean;
}

/** Dead letters, newest first; `older` says where those before them are. */
export interface DeadLetters {
  letters: DeadLetter[];
  older: string | null;
}

export interface RedriveOutcome {
  moved: number;
  moved_before: number;
  by_topic: Record<string, number>;
}

export interface Series {
  times: number[];
  series: Record<string, (number | null)[]>;
}
