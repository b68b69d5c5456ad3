/** A VM's serial console: the end of its log, and a terminal to type in. */
import { useEffect, useRef, useState } from "preact/hooks";
import { get, Problem } from "../api/client";
import { session } from "../api/session";
import type { ConsoleRead, Vm } from "../api/types";
import type { Screen } from "../console/terminal";
import { Typing } from "../console/typing";
import { Command, Panel, ProblemMessage } from "../parts/basics";
import { plain, shellWord } from "../words";
import "./console.css";

export function Console({ vm }: { vm: Vm }) {
  const log = useLog(vm);
  return (
    <Panel title="Serial console">
      {!session.readOnly && <Terminal vm={vm} />}
      <p class="buttons">
        <button type="button" disabled={log.busy || !vm.host} onClick={() => void log.read()}>
          {log.busy ? "Reading …" : log.found === null ? "Read the log" : "Read again"}
        </button>
        {log.found && <span class="hint">{log.found.end} bytes written so far; these are the last 64 KiB</span>}
      </p>
      <ProblemMessage problem={log.problem} />
      {log.found && (
        <pre class="console" tabIndex={0} aria-label={`Log of ${vm.name}`}>
          {log.found.text || "(nothing written)"}
        </pre>
      )}
      <Command line={`fuga console ${shellWord(vm.name)} --log`} calls={[{ path: `vms/${vm.id}/console` }]} />
    </Panel>
  );
}

/** The end of what the guest wrote, as text and nothing else. */
function useLog(vm: Vm) {
  const [found, setFound] = useState<{ text: string; end: number } | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const read = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      const answer = await get<ConsoleRead>(`vms/${vm.id}/console`);
      const bytes = Uint8Array.from(atob(answer.content), (each) => each.charCodeAt(0));
      setFound({ text: plain(new TextDecoder().decode(bytes)), end: answer.end });
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      setProblem(problem);
    }
    setBusy(false);
  };
  return { found, problem, busy, read };
}

interface Open {
  screen: Screen;
  typing: Typing;
}

function Terminal({ vm }: { vm: Vm }) {
  const place = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  const open = useRef<Open | null>(null);
  const gone = useRef(false);
  const [state, setState] = useState<"closed" | "opening" | "open">("closed");
  const [over, setOver] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [size, setSize] = useState<[number, number] | null>(null);

  const leave = (): void => {
    open.current?.typing.leave();
    open.current?.screen.close();
    open.current = null;
  };
  useEffect(() => {
    const left = (): void => open.current?.typing.leave();
    addEventListener("pagehide", left);
    return () => {
      removeEventListener("pagehide", left);
      gone.current = true;
      leave();
    };
  }, []);

  const begin = async (force: boolean): Promise<void> => {
    leave();
    setState("opening");
    setOver(null);
    setProblem(null);
    let screen: Screen | null = null;
    let typing: Typing | null = null;
    const early: (Uint8Array | string)[] = [];
    const show = (said: Uint8Array | string): void => {
      if (screen === null) early.push(said);
      else if (typeof said === "string") screen.tell(said);
      else screen.write(said);
    };
    try {
      const { openTerminal } = await import("../console/terminal");
      const hold = await Typing.begin(vm.id, force, {
        output: show,
        notice: show,
        ended: (why) => {
          if (why !== null) show(`the console is closed: ${why}`);
          setOver(why);
          setState("closed");
        },
      });
      typing = hold;
      if (gone.current || place.current === null) {
        hold.leave();
        return;
      }
      screen = openTerminal(place.current, `Console of ${vm.name}: Ctrl-] leaves it`, {
        typed: (bytes) => hold.type(bytes),
        left: () => {
          hold.leave();
          opener.current?.focus();
        },
        sized: (columns, rows) => setSize([columns, rows]),
      });
      open.current = { screen, typing: hold };
      setState("open");
      early.splice(0).forEach(show);
      screen.focus();
    } catch (found) {
      setState("closed");
      if (!(found instanceof Problem)) {
        typing?.leave(); // nobody else could take it before it times out
        setOver("the terminal could not be loaded; reload the page");
        return;
      }
      setProblem(found);
    }
  };

  const held = problem?.status === 409;
  return (
    <>
      <p class="buttons">
        <button
          ref={opener}
          type="button"
          class={state === "open" ? "" : "primary"}
          disabled={state === "opening" || !vm.host}
          onClick={() => (state === "open" ? open.current?.typing.leave() : void begin(false))}
        >
          {state === "open" ? "Leave the console" : state === "opening" ? "Opening …" : over ? "Open it again" : "Open the console"}
        </button>
        {held && (
          <button type="button" class="danger" onClick={() => void begin(true)}>
            Take it from its user
          </button>
        )}
        {state === "open" && (
          <span class="hint">
            <kbd>Ctrl</kbd>-<kbd>]</kbd> leaves it. Enter may show a prompt.
            {size && ` A guest learns the size by stty columns ${size[0]} rows ${size[1]}.`}
          </span>
        )}
      </p>
      <ProblemMessage problem={problem} />
      {over && (
        <p class="message warn" role="status">
          The console is closed: {over}.
        </p>
      )}
      <div ref={place} class="guest-terminal" data-state={state} hidden={open.current === null && state !== "opening"} />
      <Command
        line={`fuga console ${shellWord(vm.name)}`}
        calls={[{ method: "POST", path: `vms/${vm.id}/console/sessions`, body: { force: false } }]}
      />
    </>
  );
}
