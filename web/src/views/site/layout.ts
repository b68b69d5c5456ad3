/** Where each host of a map lies: blocks of squares, side by side, one for each group. */
export interface Block {
  name: string;
  hosts: readonly number[];
  x: number;
  y: number;
  columns: number;
}

export interface Layout {
  cell: number;
  height: number;
  blocks: Block[];
  /** Of each host, in pixels. */
  x: Float32Array;
  y: Float32Array;
}

export interface Group {
  name: string;
  hosts: readonly number[];
}

/** A few hosts are drawn so large that their names have room in them. */
const LARGEST = 112;
const SMALLEST = 3;
const HEADING = 20;
const GAP = 14;
const NARROWEST = 84;

/** Lay out groups as large as fits into a height, then `zoom` times as large. */
export function layOut(groups: readonly Group[], width: number, height: number, zoom: number): Layout {
  let cell = SMALLEST;
  for (let tried = LARGEST; tried > SMALLEST; tried--) {
    if (place(groups, width, tried).height <= height) {
      cell = tried;
      break;
    }
  }
  const wanted = Math.round(cell * zoom);
  const found = place(groups, width, Math.max(SMALLEST, Math.min(LARGEST, wanted)));
  const hosts = groups.reduce((sum, each) => sum + each.hosts.length, 0);
  const x = new Float32Array(hosts);
  const y = new Float32Array(hosts);
  for (const block of found.blocks) {
    block.hosts.forEach((host, index) => {
      x[host] = block.x + (index % block.columns) * found.cell;
      y[host] = block.y + Math.floor(index / block.columns) * found.cell;
    });
  }
  return { ...found, x, y };
}

function place(groups: readonly Group[], width: number, cell: number): { cell: number; height: number; blocks: Block[] } {
  const most = Math.max(1, Math.floor(width / cell));
  const heading = groups.length > 1 ? HEADING : 0;
  // A few large groups share the width, many small ones are nearly squares.
  const largest = Math.max(1, ...groups.map((each) => each.hosts.length));
  const abreast = Math.max(1, Math.round((width + GAP) / (Math.sqrt(largest) * 1.4 * cell + GAP)));
  const shared = Math.floor(((width + GAP) / abreast - GAP) / cell);
  const blocks: Block[] = [];
  let x = 0;
  let y = 0;
  let shelf = 0;
  for (const { name, hosts } of groups) {
    const square = hosts.length > largest / 2 ? shared : Math.ceil(Math.sqrt(hosts.length) * 1.4);
    const wide = groups.length > 1 ? square : most;
    const columns = Math.min(most, Math.max(wide, Math.ceil(NARROWEST / cell)));
    const takes = columns * cell;
    if (x > 0 && x + takes > width) {
      x = 0;
      y += shelf + GAP;
      shelf = 0;
    }
    blocks.push({ name, hosts, x, y: y + heading, columns });
    x += takes + GAP;
    shelf = Math.max(shelf, heading + Math.ceil(hosts.length / columns) * cell);
  }
  return { cell, height: y + shelf, blocks };
}

/** The host at a point, or null. */
export function hostAt(layout: Layout, x: number, y: number): number | null {
  for (const block of layout.blocks) {
    const column = Math.floor((x - block.x) / layout.cell);
    const row = Math.floor((y - block.y) / layout.cell);
    if (column < 0 || row < 0 || column >= block.columns) continue;
    const host = block.hosts[row * block.columns + column];
    if (host !== undefined) return host;
  }
  return null;
}
