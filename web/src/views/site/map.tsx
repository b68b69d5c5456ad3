/** All hosts as squares of one picture, coloured by what is asked about them. For operators. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useSlowly } from "../../api/live";
import type { HostMap } from "../../api/types";
import { Command, Loading, ProblemMessage } from "../../parts/basics";
import { go, to } from "../../route";
import { amount, count, noun, percent } from "../../words";
import { type Choice, choices, type Colouring, colouring, labelKeys, labelValue, stateOf, vmsOn } from "./colours";
import { type Group, hostAt, type Layout, layOut } from "./layout";
import "./map.css";
import "./site.css";

/** A map of 10,000 hosts is half a second of the API's processor: not at each event. */
const READ_EVERY_MS = 15_000;
const LISTED = 60;
const ZOOMS = [1, 1.5, 2, 3] as const;
const STEPS = 24;

export function HostMapView() {
  const { data: map, problem } = useSlowly<HostMap>("host-map", READ_EVERY_MS);
  return (
    <>
      <h1>Cluster map</h1>
      <ProblemMessage problem={problem} />
      {map === null ? problem === null && <Loading /> : <Mapped map={map} />}
      <Command line="fuga host list" calls={[{ path: "host-map" }]} />
    </>
  );
}

function Mapped({ map }: { map: HostMap }) {
  const [by, setBy] = useState("fullest");
  const [tenant, setTenant] = useState("");
  const [grouped, setGrouped] = useState(() => (labelKeys(map).includes("zone") ? "zone" : ""));
  const [zoom, setZoom] = useState(0);
  const [words, setWords] = useState("");
  const [chosen, setOnly] = useState<string | null>(null);
  const [shown, setShown] = useState<number | null>(null);
  const colours = useMemo(() => colouring(map, by, tenant), [map, by, tenant]);
  // A kind of which there is no host any more has no button to let go of it.
  const only = colours.kinds.some((each) => each.name === chosen) ? chosen : null;
  const order = useMemo(() => inOrder(map), [map]);
  const groups = useMemo(() => groupsOf(map, order, grouped), [map, order, grouped]);
  const seen = useMemo(() => matching(map, colours, words, only), [map, colours, words, only]);
  if (map.names.length === 0) return <p class="empty">No hosts. <code>fuga host add</code> adds one.</p>;
  return (
    <>
      <Sums map={map} />
      <div class="map-tools">
        <label>
          Colour by
          <select
            value={by}
            onChange={(event) => {
              setBy(event.currentTarget.value);
              setOnly(null);
            }}
          >
            {choices(map).map((each) => (
              <option key={each.value} value={each.value}>
                {each.name}
              </option>
            ))}
          </select>
        </label>
        {by === "tenant" && (
          <label>
            Tenant
            <select value={tenant} onChange={(event) => setTenant(event.currentTarget.value)}>
              <option value="">all, each in its colour</option>
              {map.tenants.toSorted((a, b) => a.localeCompare(b)).map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          Group by
          <select value={grouped} onChange={(event) => setGrouped(event.currentTarget.value)}>
            <option value="">nothing</option>
            {labelKeys(map).map((key) => (
              <option key={key} value={key}>
                label {key}
              </option>
            ))}
          </select>
        </label>
        <label>
          Find hosts
          <input
            type="search"
            placeholder="name, label or tenant"
            value={words}
            onInput={(event) => setWords(event.currentTarget.value)}
          />
        </label>
        <span class="map-zoom" role="group" aria-label="Size of the squares">
          <button type="button" disabled={zoom === 0} onClick={() => setZoom(zoom - 1)} aria-label="Smaller">
            −
          </button>
          <button
            type="button"
            disabled={zoom === ZOOMS.length - 1}
            onClick={() => setZoom(zoom + 1)}
            aria-label="Larger"
          >
            +
          </button>
        </span>
      </div>
      <Legend colours={colours} only={only} onOnly={setOnly} />
      <div class="map-and-list">
        <Picture
          map={map}
          colours={colours}
          groups={groups}
          zoom={ZOOMS[zoom] ?? 1}
          seen={seen}
          shown={shown}
          onShow={setShown}
          label={nameOf(choices(map), by)}
        />
        <HostList map={map} colours={colours} seen={seen} order={order} onShow={setShown} />
      </div>
    </>
  );
}

const nameOf = (all: Choice[], value: string): string => all.find((each) => each.value === value)?.name ?? value;

/** Hosts as people count them: h2 before h10. */
function inOrder(map: HostMap): number[] {
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  return map.names.map((_, host) => host).sort((a, b) => compare(map.names[a] ?? "", map.names[b] ?? ""));
}

function groupsOf(map: HostMap, order: number[], key: string): Group[] {
  if (!key) return [{ name: "", hosts: order }];
  const found = new Map<string, number[]>();
  for (const host of order) {
    const value = labelValue(map, host, key) ?? `no ${key}`;
    const hosts = found.get(value);
    if (hosts) hosts.push(host);
    else found.set(value, [host]);
  }
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  const last = (group: Group): number => (group.name === `no ${key}` ? 1 : 0);
  return [...found]
    .map(([name, hosts]) => ({ name, hosts }))
    .sort((a, b) => last(a) - last(b) || compare(a.name, b.name));
}

/** Which hosts are meant by what is typed and chosen; null: all. */
function matching(map: HostMap, colours: Colouring, words: string, only: string | null): Uint8Array | null {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0 && only === null) return null;
  const kind = only === null ? -1 : colours.kinds.findIndex((each) => each.name === only);
  return Uint8Array.from(map.names, (name, host) => {
    if (only !== null && colours.kind?.[host] !== kind) return 0;
    if (wanted.length === 0) return 1;
    const labels = (map.labels_of[host] ?? []).map((at) => map.labels[at]);
    const tenants = (map.held_by[host] ?? []).map(([who]) => map.tenants[who ?? -1]);
    const text = [name, stateOf(map, host), ...labels, ...tenants].join(" ").toLowerCase();
    return wanted.every((word) => text.includes(word)) ? 1 : 0;
  });
}

/** Of a whole site: 2,500 TiB rather than 2560032 GiB. */
function large(resource: string, value: number): string {
  const gib = resource.endsWith("_mib") ? value / 1024 : value;
  if (!/_(mib|gib)$/.test(resource)) return value.toLocaleString();
  return gib >= 1024 ? `${Math.round(gib / 1024).toLocaleString()} TiB` : `${Math.round(gib)} GiB`;
}

function Sums({ map }: { map: HostMap }) {
  const up = map.health.filter((each, host) => each === "up" && map.admin[host] === "active").length;
  const vms = map.names.reduce((sum, _, host) => sum + vmsOn(map, host), 0);
  return (
    <dl class="sums">
      <div>
        <dt>Hosts that take VMs</dt>
        <dd>
          {up.toLocaleString()} <span class="hint">of {map.names.length.toLocaleString()}</span>
        </dd>
      </div>
      <div>
        <dt>VMs on them</dt>
        <dd>{vms.toLocaleString()}</dd>
      </div>
      {map.resources.map((each) => {
        const held = each.committed.reduce((a, b) => a + b, 0);
        const offered = each.capacity.reduce((a, b) => a + b, 0);
        return (
          <div key={each.resource}>
            <dt>{noun(each.resource)} committed</dt>
            <dd>
              {offered ? percent(held / offered) : "-"}{" "}
              <span class="hint">of {large(each.resource, offered)}</span>
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

function Legend(given: { colours: Colouring; only: string | null; onOnly: (name: string | null) => void }) {
  const { colours, only } = given;
  const dark = useDark();
  if (colours.kind === null) {
    return (
      <p class="map-legend">
        <span>0 %</span>
        <span class="ramp" aria-hidden="true">
          {Array.from({ length: 12 }, (_, step) => (
            <span key={step} style={{ background: shade(step / 11, dark) }} />
          ))}
        </span>
        <span>{colours.words(0).includes("VMs") ? "most" : "100 %"}</span>
        <span class="swatch" style={{ background: OVER }} aria-hidden="true" />
        <span>above capacity</span>
      </p>
    );
  }
  return (
    <ul class="map-legend" aria-label="Colours">
      {colours.kinds.map((each) => (
        <li key={each.name}>
          <button
            type="button"
            class="quiet"
            aria-pressed={only === each.name}
            onClick={() => given.onOnly(only === each.name ? null : each.name)}
          >
            <span class="swatch" style={{ background: each.colour || faint(dark) }} aria-hidden="true" />
            {each.marked && <span aria-hidden="true">▲ </span>}
            {each.name} <span class="hint">{each.count.toLocaleString()}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

// ---- the picture ----------------------------------------------------------------

const OVER = "#d03b3b";
const faint = (dark: boolean): string => (dark ? "#3a404c" : "#ccd2dc");

/** From hardly anything to full. */
function shade(part: number, dark: boolean): string {
  if (part > 1) return OVER;
  const [from, through, end] = dark
    ? [[38, 44, 56], [38, 96, 146], [122, 222, 214]]
    : [[226, 232, 242], [104, 150, 222], [20, 44, 128]];
  const [a, b, at] = part < 0.5 ? [from, through, part * 2] : [through, end, part * 2 - 1];
  const mixed = [0, 1, 2].map((each) => Math.round((a?.[each] ?? 0) * (1 - at) + (b?.[each] ?? 0) * at));
  return `rgb(${mixed.join(" ")})`;
}

function useDark(): boolean {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = (): void => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return dark;
}

function Picture(given: {
  map: HostMap;
  colours: Colouring;
  groups: Group[];
  zoom: number;
  seen: Uint8Array | null;
  shown: number | null;
  onShow: (host: number | null) => void;
  label: string;
}) {
  const { map, colours, groups, seen, shown } = given;
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const dark = useDark();
  useLayoutEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const sized = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    sized.observe(element);
    setWidth(Math.floor(element.clientWidth));
    return () => sized.disconnect();
  }, []);
  const layout = useMemo(
    () => layOut(groups, Math.max(1, width), Math.max(320, innerHeight * 0.6), given.zoom),
    [groups, width, given.zoom],
  );
  useEffect(() => {
    if (canvas.current !== null && width > 0) draw(canvas.current, layout, width, colours, seen, dark, map.names);
  }, [layout, width, colours, seen, dark, map.names]);
  const at = (event: MouseEvent): number | null => {
    const box = canvas.current?.getBoundingClientRect();
    return box ? hostAt(layout, event.clientX - box.left, event.clientY - box.top) : null;
  };
  return (
    <div class="map-frame" ref={frame}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${count(map.names.length, "host")} as squares, coloured by: ${given.label}. The list next to it has the same hosts.`}
        data-hosts={map.names.length}
        onPointerMove={(event) => given.onShow(at(event))}
        onPointerLeave={() => given.onShow(null)}
        onClick={(event) => {
          const host = at(event);
          const name = host === null ? undefined : map.names[host];
          if (name !== undefined) go("hosts", name);
        }}
      />
      {shown !== null && shown < map.names.length && (
        <Tip map={map} colours={colours} host={shown} layout={layout} width={width} />
      )}
    </div>
  );
}

/** Squares of so many pixels have the names of hosts in them. */
const NAMED_FROM_PX = 64;

const shortened = (name: string, most: number): string =>
  name.length > most ? `${name.slice(0, Math.max(1, Math.floor(most) - 1))}…` : name;

function draw(
  canvas: HTMLCanvasElement,
  layout: Layout,
  width: number,
  colours: Colouring,
  seen: Uint8Array | null,
  dark: boolean,
  names: readonly string[],
): void {
  const ratio = Math.min(2, devicePixelRatio || 1);
  const height = Math.ceil(layout.height) + 2;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (context === null) return;
  context.scale(ratio, ratio);
  const gap = layout.cell >= 12 ? 2 : layout.cell >= 5 ? 1 : 0.5;
  const size = layout.cell - gap;
  const named = layout.cell >= NAMED_FROM_PX;
  const steps = Array.from({ length: STEPS }, (_, step) => shade(step / (STEPS - 1), dark));
  for (let host = 0; host < layout.x.length; host++) {
    const part = colours.parts?.[host] ?? 0;
    const kind = colours.kinds[colours.kind?.[host] ?? -1];
    const step = steps[Math.round(Math.min(1, part) * (STEPS - 1))];
    context.globalAlpha = seen === null || seen[host] ? 1 : 0.13;
    context.fillStyle = colours.parts !== null ? (part > 1 ? OVER : (step ?? OVER)) : kind?.colour || faint(dark);
    const [x, y] = [layout.x[host] ?? 0, layout.y[host] ?? 0];
    context.fillRect(x, y, size, size);
    if ((kind?.marked || part > 1) && size >= 5) {
      context.fillStyle = "#ffffff";
      context.beginPath();
      context.moveTo(x + size / 2, y + size * 0.22);
      context.lineTo(x + size * 0.8, y + size * 0.78);
      context.lineTo(x + size * 0.2, y + size * 0.78);
      context.fill();
    }
    if (named) {
      context.fillStyle = dark ? "#1c1f25" : "#ffffff";
      context.fillRect(x + 2, y + size - 22, size - 4, 20);
      context.fillStyle = dark ? "#e7e9ee" : "#1a1d23";
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.fillText(shortened(names[host] ?? "", size / 7), x + 7, y + size - 11, size - 14);
    }
  }
  context.globalAlpha = 1;
  if (layout.blocks.length < 2) return;
  context.fillStyle = dark ? "#a3abb9" : "#545c6a";
  context.font = "600 12px system-ui, sans-serif";
  context.textBaseline = "alphabetic";
  for (const block of layout.blocks) {
    context.fillText(shortened(block.name, 24), block.x, block.y - 6, Math.max(60, block.columns * layout.cell));
  }
}

function Tip(given: { map: HostMap; colours: Colouring; host: number; layout: Layout; width: number }) {
  const { map, host, layout, width } = given;
  const [x, y] = [layout.x[host] ?? 0, layout.y[host] ?? 0];
  const left = Math.max(0, Math.min(x + layout.cell + 6, width - 240));
  const holders = (map.held_by[host] ?? []).slice(0, 4);
  const more = (map.held_by[host] ?? []).length - holders.length;
  return (
    <>
      <span
        class="map-mark"
        aria-hidden="true"
        style={{ left: `${x - 2}px`, top: `${y - 2}px`, width: `${layout.cell + 2}px`, height: `${layout.cell + 2}px` }}
      />
      <div class="map-tip" aria-hidden="true" style={{ left: `${left}px`, top: `${y + layout.cell + 6}px` }}>
        <strong>{map.names[host]}</strong> <span class="hint">{stateOf(map, host)}</span>
        <table>
          <tbody>
            {map.resources.map((each) => (
              <tr key={each.resource}>
                <th scope="row">{noun(each.resource)}</th>
                <td class="numeric">{amount(each.resource, each.committed[host] ?? 0)}</td>
                <td class="numeric hint">of {amount(each.resource, each.capacity[host] ?? 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <p>{count(vmsOn(map, host), "VM")}</p>
        {holders.length > 0 && (
          <p class="hint">
            {holders.map(([who, many]) => `${map.tenants[who ?? -1]} ${many}`).join(", ")}
            {more > 0 && `, and ${more} more`}
          </p>
        )}
        <p class="hint">{(map.labels_of[host] ?? []).map((at) => map.labels[at]).join(", ")}</p>
      </div>
    </>
  );
}

/** The same by keyboard: the hosts that stand out first. */
function HostList(given: {
  map: HostMap;
  colours: Colouring;
  seen: Uint8Array | null;
  order: number[];
  onShow: (host: number | null) => void;
}) {
  const { map, colours, seen, order } = given;
  const hosts = useMemo(() => {
    const found = order.filter((host) => seen === null || seen[host]);
    const { parts } = colours;
    return parts === null ? found : found.sort((a, b) => (parts[b] ?? 0) - (parts[a] ?? 0));
  }, [order, seen, colours]);
  const show = (host: number) => ({
    onFocusCapture: () => given.onShow(host),
    onBlurCapture: () => given.onShow(null),
    onPointerEnter: () => given.onShow(host),
    onPointerLeave: () => given.onShow(null),
  });
  return (
    <section class="map-list" aria-label="Hosts of the map">
      <p class="counted" role="status">
        {hosts.length === map.names.length
          ? `${hosts.length.toLocaleString()} hosts`
          : `${hosts.length.toLocaleString()} of ${map.names.length.toLocaleString()} hosts`}
        {hosts.length > LISTED && `: ${colours.parts ? "the fullest" : "the first"} ${LISTED}`}
      </p>
      <ol>
        {hosts.slice(0, LISTED).map((host) => (
          <li key={map.names[host]} {...show(host)}>
            <a href={to("hosts", map.names[host] ?? "")}>{map.names[host]}</a>
            <span class="hint">{colours.words(host)}</span>
          </li>
        ))}
      </ol>
      {hosts.length === 0 && <p class="empty">No host matches.</p>}
    </section>
  );
}
