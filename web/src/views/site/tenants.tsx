/** The tree of tenants: weights, places and quotas, each change tried before it is made. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { newKey, Problem, queryText, send } from "../../api/client";
import { useLive } from "../../api/live";
import { session } from "../../api/session";
import type { Effects, Quota, TenantShare, Tenant } from "../../api/types";
import { ConfirmButton, ConfirmDialog, useSending } from "../../parts/dialogs";
import { Bar, Command, Loading, ProblemMessage } from "../../parts/basics";
import { amount, count, percent, shellWord, unitName } from "../../words";
import "./site.css";
import "./tenants.css";

/** Typing goes on: ask when it rests. */
const RESTS_MS = 300;
const SAME = 5e-6;
/** Rows drawn at once. */
const DRAWN = 200;

interface Change {
  weight?: number;
  parent?: string | null;
}

type OpenDialog = { kind: "change"; name: string; change: Change } | { kind: "quota"; name: string } | { kind: "new"; parent: string | null };

export function TenantsView() {
  const { data, problem } = useLive<{ items: TenantShare[] }>("shares");
  const [dialog, ask] = useState<OpenDialog | null>(null);
  const dragging = useDragging((name, parent) => drop(name, parent));
  const { dragged } = dragging;
  const rows = data?.items ?? null;
  const depths = useMemo(() => depthsOf(rows ?? []), [rows]);
  const may = !session.readOnly;
  const [words, setWords] = useState("");
  const [drawn, setDrawn] = useState(DRAWN);
  const found = useMemo(() => withGroups(rows ?? [], words), [rows, words]);
  const most = useMemo(() => Math.max(0.001, ...(rows ?? []).map((each) => Math.max(each.share, each.entitlement))), [rows]);
  const drop = (name: string, parent: string | null): void => {
    const moved = rows?.find((each) => each.name === name);
    if (moved && rows && mayGoTo(rows, moved, parent)) {
      ask({ kind: "change", name: moved.name, change: { parent } });
    }
  };
  const dropOn = (each: TenantShare): Drop => {
    const moved = dragged === null ? undefined : rows?.find((one) => one.name === dragged);
    if (!moved || !rows || !each.is_group || !mayGoTo(rows, moved, each.name)) return "";
    return dragging.over === each.name ? "takes" : "may";
  };
  return (
    <>
      <h1>Tenants</h1>
      <ProblemMessage problem={problem} />
      {may && (
        <p class="buttons">
          <button type="button" onClick={() => ask({ kind: "new", parent: null })}>
            New tenant or group
          </button>
          <span class="hint">Drag a row onto a group (by ⠿ on a touchscreen), or choose its group by “Change”. Both show the effect first.</span>
        </p>
      )}
      {rows !== null && (
        <div class="table">
          <p class="tools">
            <input
              type="search"
              aria-label="Filter tenants"
              placeholder="Filter: a part of a name"
              value={words}
              onInput={(event) => setWords(event.currentTarget.value)}
            />
            <span class="counted" role="status">
              {found.length === rows.length ? rows.length : `${found.length} of ${rows.length}`}
            </span>
          </p>
        </div>
      )}
      {rows === null ? (
        problem === null && <Loading />
      ) : (
        <div class="scrolls" tabIndex={0} role="region" aria-label="Tree of tenants">
          <table class={dragged === null ? "tree" : "tree dragging"} {...dragging.table}>
            <thead>
              <tr>
                <th>Name</th>
                <th class="numeric">Weight</th>
                <th>Share, with a mark at its entitlement</th>
                <th class="numeric">Share</th>
                <th class="numeric">Entitled to</th>
                {may && <th>Change</th>}
              </tr>
            </thead>
            <tbody>
              {found.slice(0, drawn).map((each) => (
                <Row
                  key={each.name}
                  row={each}
                  most={most}
                  depth={depths.get(each.name) ?? 0}
                  may={may}
                  drop={dropOn(each)}
                  isDragged={dragged === each.name}
                  onAsk={ask}
                />
              ))}
              {may && dragged !== null && (
                <tr class={`top ${dragging.over === "" ? "takes" : "may"}`} data-drop="">
                  <td colSpan={6}>Drop it here to have it in no group</td>
                </tr>
              )}
            </tbody>
          </table>
          {rows.length === 0 && <p class="empty">No tenants yet.</p>}
        </div>
      )}
      {rows !== null && rows.length > 0 && <p class="hint">The bars end at {percent(most)} of the pool.</p>}
      {found.length > drawn && (
        <button type="button" onClick={() => setDrawn(drawn + DRAWN)}>
          Show {Math.min(DRAWN, found.length - drawn)} more
        </button>
      )}
      <Command line="fuga tenant list" calls={[{ path: "shares" }]} />
      {dialog?.kind === "change" && rows && (
        <ChangeAsks rows={rows} name={dialog.name} begins={dialog.change} onDone={() => ask(null)} />
      )}
      {dialog?.kind === "quota" && <QuotaAsks name={dialog.name} onDone={() => ask(null)} />}
      {dialog?.kind === "new" && rows && <NewAsks rows={rows} onDone={() => ask(null)} />}
    </>
  );
}

function Row(given: {
  row: TenantShare;
  /** Where the bars end. */
  most: number;
  depth: number;
  may: boolean;
  drop: Drop;
  isDragged: boolean;
  onAsk: (dialog: OpenDialog) => void;
}) {
  const { row, may } = given;
  return (
    <tr
      class={`${given.drop}${given.isDragged ? " dragged" : ""}`}
      data-drag={may ? row.name : undefined}
      data-drop={row.is_group ? row.name : undefined}
    >
      <td data-name="Name">
        <span class="node" style={{ paddingLeft: `${given.depth * 1.4}rem` }}>
          {may && (
            <span class="grip" aria-hidden="true" title="Drag it onto a group">
              ⠿
            </span>
          )}
          {row.is_group ? "▾ " : ""}
          {row.is_group ? <strong>{row.name}</strong> : row.name}
          {row.is_group && <span class="hint"> group</span>}
        </span>
      </td>
      <td data-name="Weight" class="numeric">
        {row.weight}
      </td>
      <td data-name="Share" class="wide">
        <Bar
          part={row.share / given.most}
          mark={row.entitlement / given.most}
          label={`holds ${percent(row.share)}, entitled to ${percent(row.entitlement)}`}
        />
      </td>
      <td data-name="Share" class="numeric">
        {percent(row.share)}
      </td>
      <td data-name="Entitled to" class="numeric">
        {percent(row.entitlement)}
      </td>
      {may && (
        <td data-name="Change">
          <span class="buttons tight">
            <button
              type="button"
              class="quiet"
              aria-label={`Change ${row.name}`}
              onClick={() => given.onAsk({ kind: "change", name: row.name, change: {} })}
            >
              Change
            </button>
            <button
              type="button"
              class="quiet"
              aria-label={`Quota of ${row.name}`}
              onClick={() => given.onAsk({ kind: "quota", name: row.name })}
            >
              Quota
            </button>
            <ConfirmButton
              name="Remove"
              title={`Remove ${row.name}?`}
              action="Remove"
              danger
              line={`fuga tenant remove ${shellWord(row.name)}`}
              method="DELETE"
              path={`tenants/${encodeURIComponent(row.name)}`}
            >
              <p>Its history is kept. It must have no requests, and a group no members.</p>
            </ConfirmButton>
          </span>
        </td>
      )}
    </tr>
  );
}

/** Whether a row may take what is dragged, and would if it were let go now. */
type Drop = "" | "may" | "takes";

/** So far a pointer goes before it drags: less is a click. */
const BEGINS_PX = 6;
const EDGE_PX = 48;

/** Dragging by pointer events, of mouse, pen and finger alike; a finger drags by the grip, and else scrolls. */
function useDragging(onDrop: (name: string, parent: string | null) => void) {
  const held = useRef<{ name: string; x: number; y: number } | null>(null);
  const [dragged, setDragged] = useState<string | null>(null);
  const [over, setOver] = useState<string | null>(null);
  const end = (): void => {
    held.current = null;
    setDragged(null);
    setOver(null);
  };
  useEffect(() => {
    const escape = (event: KeyboardEvent): void => void (event.key === "Escape" && end());
    addEventListener("keydown", escape);
    return () => removeEventListener("keydown", escape);
  }, []);
  const table = {
    onPointerDown: (event: PointerEvent) => {
      const at = event.target as Element;
      const name = at.closest<HTMLElement>("[data-drag]")?.dataset["drag"];
      const begins = event.pointerType === "mouse" ? !at.closest("button, a, dialog") : at.closest(".grip");
      if (name === undefined || !begins || event.button !== 0) return;
      held.current = { name, x: event.clientX, y: event.clientY };
      (event.currentTarget as Element).setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const from = held.current;
      if (from === null) return;
      if (Math.hypot(event.clientX - from.x, event.clientY - from.y) > BEGINS_PX) setDragged(from.name);
      setOver(dropAt(event));
      // What is out of sight comes to where the pointer waits.
      if (event.clientY > innerHeight - EDGE_PX) scrollBy(0, EDGE_PX / 2);
      else if (event.clientY < EDGE_PX) scrollBy(0, -EDGE_PX / 2);
    },
    onPointerUp: (event: PointerEvent) => {
      const target = dropAt(event);
      if (dragged !== null && target !== null) onDrop(dragged, target || null);
      end();
    },
    onPointerCancel: end,
  };
  return { dragged, over, table };
}

/** The group below a pointer that takes what is dragged; "" is the place of no group. */
function dropAt(event: PointerEvent): string | null {
  const below = document.elementFromPoint(event.clientX, event.clientY);
  return below?.closest<HTMLElement>("[data-drop]")?.dataset["drop"] ?? null;
}

/** Those with the words in their name, and the groups that they are in. */
function withGroups(rows: TenantShare[], words: string): TenantShare[] {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return rows;
  const parents = new Map(rows.map((each) => [each.name, each.parent]));
  const kept = new Set<string>();
  for (const each of rows) {
    if (!each.name.toLowerCase().includes(wanted)) continue;
    for (let at: string | null = each.name; at !== null; at = parents.get(at) ?? null) kept.add(at);
  }
  return rows.filter((each) => kept.has(each.name));
}

function depthsOf(rows: TenantShare[]): Map<string, number> {
  const depths = new Map<string, number>();
  for (const each of rows) depths.set(each.name, each.parent === null ? 0 : (depths.get(each.parent) ?? 0) + 1);
  return depths;
}

/** Not below itself, and not where it is. */
function mayGoTo(rows: TenantShare[], moved: TenantShare, parent: string | null): boolean {
  const parents = new Map(rows.map((each) => [each.name, each.parent]));
  for (let at = parent; at !== null; at = parents.get(at) ?? null) if (at === moved.name) return false;
  return moved.parent !== parent;
}

// ---- a change, tried first -------------------------------------------------------

/** What a call would do, asked with `dry_run` whenever what is typed rests. */
function useRehearsal(method: "POST" | "PATCH", path: string, body: object | null): { effects: Effects | null; problem: Problem | null } {
  const [effects, setEffects] = useState<Effects | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const json = body === null ? null : JSON.stringify(body);
  useEffect(() => {
    setEffects(null);
    setProblem(null);
    if (json === null) return;
    let over = false;
    const timer = setTimeout(() => {
      send<Effects>(method, path + queryText({ dry_run: true }), { body: JSON.parse(json) as object }).then(
        (found) => over || setEffects(found),
        (found: unknown) => {
          if (!(found instanceof Problem)) throw found;
          if (!over) setProblem(found);
        },
      );
    }, RESTS_MS);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [method, path, json]);
  return { effects, problem };
}

function ChangeAsks(given: { rows: TenantShare[]; name: string; begins: Change; onDone: () => void }) {
  const { rows, name } = given;
  const before = rows.find((each) => each.name === name);
  const [weight, setWeight] = useState(String(given.begins.weight ?? before?.weight ?? 1));
  const [parent, setParent] = useState<string | null>(
    given.begins.parent !== undefined ? given.begins.parent : (before?.parent ?? null),
  );
  const change: Change = {};
  if (before && weight !== "" && Number(weight) !== before.weight) change.weight = Number(weight);
  if (before && parent !== before.parent) change.parent = parent;
  const changes = Object.keys(change).length > 0;
  const path = `tenants/${encodeURIComponent(name)}`;
  const rehearsal = useRehearsal("PATCH", path, changes ? change : null);
  const sending = useSending();
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send<Tenant>("PATCH", path, { body: change });
    });
    if (done) given.onDone();
  };
  if (before === undefined) return null;
  const groups = rows.filter((each) => each.is_group && (each.name === before.parent || mayGoTo(rows, before, each.name)));
  const commands = [
    ...(change.weight === undefined ? [] : [`fuga tenant set ${shellWord(name)} --weight ${change.weight}`]),
    ...(change.parent === undefined ? [] : [`fuga tenant move ${shellWord(name)} --to ${shellWord(change.parent ?? "/")}`]),
  ];
  return (
    <ConfirmDialog
      title={`Change ${before.is_group ? "group" : "tenant"} ${name}`}
      action="Apply"
      busy={sending.busy}
      disabled={rehearsal.effects === null}
      problem={sending.problem}
      onYes={() => void yes()}
      onNo={given.onDone}
    >
      <div class="fields">
        <label>
          Weight
          <input
            type="number"
            min="0"
            step="any"
            value={weight}
            onInput={(event) => setWeight(event.currentTarget.value)}
          />
        </label>
        <GroupChoice groups={groups} value={parent} onChange={setParent} />
      </div>
      <EffectsShown rehearsal={rehearsal} about={changes ? null : "Change the weight or the group to see the effect."} />
      {commands.map((each, index) => (
        <Command key={each} line={each} calls={index === 0 ? [{ method: "PATCH", path, body: change }] : []} />
      ))}
    </ConfirmDialog>
  );
}

function GroupChoice(given: { groups: TenantShare[]; value: string | null; onChange: (parent: string | null) => void }) {
  return (
    <label>
      Group
      <select
        value={given.value === null ? "" : `in ${given.value}`}
        onChange={(event) => given.onChange(event.currentTarget.value ? event.currentTarget.value.slice(3) : null)}
      >
        <option value="">none</option>
        {given.groups.map((each) => (
          <option key={each.name} value={`in ${each.name}`}>
            {each.name}
          </option>
        ))}
      </select>
    </label>
  );
}

function EffectsShown(given: { rehearsal: { effects: Effects | null; problem: Problem | null }; about: string | null }) {
  const { effects, problem } = given.rehearsal;
  if (given.about !== null) return <p class="hint">{given.about}</p>;
  if (problem !== null) return <ProblemMessage problem={problem} />;
  if (effects === null) return <Loading />;
  const touched = effects.tenants.filter(
    (each) =>
      each.parent_before !== each.parent_after ||
      differs(each.entitlement_before, each.entitlement_after) ||
      differs(each.target_before, each.target_after),
  );
  return (
    <div role="status" class="effects">
      <p class="hint">
        {touched.length === 0
          ? "Nobody's entitlement changes."
          : `From the next round on, for ${count(touched.length, "tenant or group", "tenants and groups")}:`}
      </p>
      {touched.length > 0 && (
        <div class="scrolls" tabIndex={0} role="region" aria-label="Effect">
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th class="numeric">Holds</th>
                <th class="numeric">Entitled to</th>
                <th class="numeric">Fair next</th>
              </tr>
            </thead>
            <tbody>
              {touched.map((each) => (
                <tr key={each.name}>
                  <td data-name="Name">
                    {each.name}
                    {each.parent_before !== each.parent_after && (
                      <span class="why">
                        {each.parent_before ?? "no group"} → {each.parent_after ?? "no group"}
                      </span>
                    )}
                  </td>
                  <td data-name="Holds" class="numeric">{percent(each.share)}</td>
                  <td data-name="Entitled to" class="numeric">{fromTo(each.entitlement_before, each.entitlement_after)}</td>
                  <td data-name="Fair next" class="numeric">{fromTo(each.target_before, each.target_after)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

const differs = (a: number | null, b: number | null): boolean => Math.abs((a ?? -1) - (b ?? -1)) > SAME;
const said = (value: number | null): string => (value === null ? "-" : percent(value));
const fromTo = (a: number | null, b: number | null): string => (differs(a, b) ? `${said(a)} → ${said(b)}` : said(b));

// ---- a new one ------------------------------------------------------------------

function NewAsks({ rows, onDone }: { rows: TenantShare[]; onDone: () => void }) {
  const [name, setName] = useState("");
  const [weight, setWeight] = useState("1");
  const [parent, setParent] = useState<string | null>(null);
  const [isGroup, setIsGroup] = useState(false);
  const body = { name, weight: Number(weight || 1), parent, is_group: isGroup };
  const rehearsal = useRehearsal("POST", "tenants", name ? body : null);
  const sending = useSending();
  const key = useMemo(newKey, [JSON.stringify(body)]);
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send<Tenant>("POST", "tenants", { body, key });
    });
    if (done) onDone();
  };
  const options = [
    ...(body.weight === 1 ? [] : [`--weight ${body.weight}`]),
    ...(parent === null ? [] : [`--parent ${shellWord(parent)}`]),
    ...(isGroup ? ["--group"] : []),
  ];
  return (
    <ConfirmDialog
      title="New tenant or group"
      action="Create"
      busy={sending.busy}
      disabled={rehearsal.effects === null}
      problem={sending.problem}
      onYes={() => void yes()}
      onNo={onDone}
    >
      <label>
        Name
        <input required maxLength={63} value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <div class="fields">
        <label>
          Weight
          <input type="number" min="0" step="any" value={weight} onInput={(event) => setWeight(event.currentTarget.value)} />
        </label>
        <GroupChoice groups={rows.filter((each) => each.is_group)} value={parent} onChange={setParent} />
      </div>
      <label class="check">
        <input type="checkbox" checked={isGroup} onChange={(event) => setIsGroup(event.currentTarget.checked)} /> A group:
        its tenants request VMs, it does not
      </label>
      <EffectsShown rehearsal={rehearsal} about={name ? null : "Type a name to see the effect."} />
      <Command
        line={["fuga tenant create", shellWord(name || "NAME"), ...options].join(" ")}
        calls={[{ method: "POST", path: "tenants", body }]}
      />
    </ConfirmDialog>
  );
}

// ---- quotas ---------------------------------------------------------------------

function QuotaAsks({ name, onDone }: { name: string; onDone: () => void }) {
  const path = `tenants/${encodeURIComponent(name)}/quota`;
  const { data: quota, problem } = useLive<Quota>(path);
  const resources = useLive<{ items: { name: string }[] }>("resources").data?.items;
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [over, setOver] = useState<string | null>(null);
  const sending = useSending();
  const own = new Map(quota?.limits.filter((each) => each.tenant === name).map((each) => [each.resource, each]));
  const axis = ["vms", ...(resources?.map((each) => each.name) ?? [])];
  const limits: Record<string, number | null> = {};
  for (const [resource, value] of Object.entries(typed)) {
    const limit = value.trim() === "" ? null : Number(value);
    if (limit !== (own.get(resource)?.limit ?? null)) limits[resource] = limit;
  }
  const body = { limits, ...(over === null ? {} : { over_quota: over }) };
  const changes = Object.keys(limits).length > 0 || over !== null;
  const yes = async (): Promise<void> => {
    const done = await sending.run(async () => {
      await send<Quota>("PATCH", path, { body });
    });
    if (done) onDone();
  };
  const below = Object.entries(limits).flatMap(([resource, limit]) => {
    const requested = own.get(resource)?.requested;
    return limit !== null && requested !== undefined && requested > limit
      ? [`${unitName(resource)}: ${amount(resource, requested)} is requested, ${amount(resource, requested - limit)} more than that. No VM ends; new ones are not accepted.`]
      : [];
  });
  const options = [
    ...Object.entries(limits).map(([resource, limit]) => `${resource}=${limit ?? "none"}`),
    ...(over === null ? [] : [`--over ${over}`]),
  ];
  const above = quota?.limits.filter((each) => each.tenant !== name) ?? [];
  return (
    <ConfirmDialog
      title={`Quota of ${name}`}
      action="Apply"
      busy={sending.busy}
      disabled={!changes}
      problem={sending.problem}
      onYes={() => void yes()}
      onNo={onDone}
    >
      <ProblemMessage problem={problem} />
      {quota === null && problem === null && <Loading />}
      {quota && (
        <>
          <div class="fields">
            {axis.map((resource) => (
              <label key={resource}>
                {resource === "vms" ? "VMs" : unitName(resource)}{" "}
                {own.has(resource) && <span class="hint">{amount(resource, own.get(resource)?.requested ?? 0)} requested</span>}
                <input
                  type="number"
                  min="0"
                  step="1"
                  placeholder="no limit"
                  value={typed[resource] ?? String(own.get(resource)?.limit ?? "")}
                  onInput={(event) => setTyped({ ...typed, [resource]: event.currentTarget.value })}
                />
              </label>
            ))}
          </div>
          <label>
            Requests above it
            <select value={over ?? quota.over_quota ?? "inherit"} onChange={(event) => setOver(event.currentTarget.value)}>
              <option value="inherit">as its group, or the site, says</option>
              <option value="refuse">are refused</option>
              <option value="wait">wait</option>
            </select>
          </label>
          {above.length > 0 && (
            <p class="hint">
              Of groups above:{" "}
              {above.map((each) => `${each.tenant} ${amount(each.resource, each.requested)} of ${amount(each.resource, each.limit)} ${each.resource === "vms" ? "VMs" : unitName(each.resource)}`).join("; ")}
            </p>
          )}
        </>
      )}
      {below.length > 0 && (
        <ul class="message warn plain" role="status">
          {below.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
      )}
      <Command
        line={["fuga quota set", shellWord(name), ...options].join(" ")}
        calls={[{ method: "PATCH", path, body }]}
      />
    </ConfirmDialog>
  );
}
