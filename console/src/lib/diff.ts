/** The lines that two texts have in common, and those that only one has. */

export interface Line {
  kind: "same" | "added" | "removed";
  text: string;
  left: number | null;
  right: number | null;
}

export function diff(before: string, after: string): Line[] {
  const a = before.split("\n");
  const b = after.split("\n");
  const width = b.length + 1;
  // common[i * width + j]: the longest common run of lines behind i and j.
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] =
        a[i] === b[j]
          ? at(common, (i + 1) * width + j + 1) + 1
          : Math.max(at(common, (i + 1) * width + j), at(common, i * width + j + 1));
    }
  }
  const lines: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i] as string, left: (i += 1), right: (j += 1) });
    } else if (
      j >= b.length ||
      (i < a.length && at(common, (i + 1) * width + j) >= at(common, i * width + j + 1))
    ) {
      lines.push({ kind: "removed", text: a[i] as string, left: (i += 1), right: null });
    } else {
      lines.push({ kind: "added", text: b[j] as string, left: null, right: (j += 1) });
    }
  }
  return lines;
}

function at(values: Uint32Array, index: number): number {
  return values[index] ?? 0;
}
