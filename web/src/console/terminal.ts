/**
 * A terminal for what a guest writes, which may be hostile: it changes nothing outside of its
 * own rows and columns. No titles, windows, links, colours of the palette or clipboard.
 *
 * Loaded only where somebody opens a console.
 */
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { underPolicy } from "./policy";

/** Commands to the terminal that are not about text: titles, colours, links, clipboard, files. */
const REFUSED_OSC = [0, 1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 17, 19, 52, 104, 105, 110, 111, 112, 133, 633, 777, 1337];
const KEEPS_LINES = 2_000;

export interface Screen {
  write: (bytes: Uint8Array) => void;
  /** Words of ours, apart from the guest's. */
  tell: (words: string) => void;
  focus: () => void;
  close: () => void;
}

export interface Keys {
  typed: (bytes: Uint8Array) => void;
  /** Ctrl-], as in telnet, virsh and `fuga console`. */
  left: () => void;
  sized: (columns: number, rows: number) => void;
}

export function openTerminal(place: HTMLElement, label: string, keys: Keys): Screen {
  const terminal = new Terminal({
    allowProposedApi: false,
    cursorBlink: false,
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    fontSize: 14,
    linkHandler: { activate: () => {}, allowNonHttpProtocols: false },
    logLevel: "off",
    minimumContrastRatio: 4.5,
    screenReaderMode: true,
    scrollback: KEEPS_LINES,
    theme: { background: "#0e1116", foreground: "#d8dee9" },
    windowOptions: {},
  });
  const nothing = (): boolean => true;
  for (const number of REFUSED_OSC) terminal.parser.registerOscHandler(number, nothing);
  terminal.parser.registerCsiHandler({ final: "t" }, nothing);
  // Settings and capabilities are nobody's business; answers would be typed.
  terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, nothing);
  terminal.parser.registerDcsHandler({ intermediates: "+", final: "q" }, nothing);
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  const forget = underPolicy(() => terminal.open(place));
  terminal.textarea?.setAttribute("aria-label", label);
  terminal.attachCustomKeyEventHandler((event) => {
    const leaves = event.ctrlKey && !event.altKey && (event.key === "]" || event.code === "BracketRight");
    if (!leaves) return true;
    event.preventDefault();
    if (event.type === "keydown") keys.left();
    return false;
  });
  const encoder = new TextEncoder();
  terminal.onData((text) => (text === "\x1d" ? keys.left() : keys.typed(encoder.encode(text))));
  terminal.onBinary((text) => keys.typed(Uint8Array.from(text, (each) => each.charCodeAt(0))));
  const size = (): void => {
    fit.fit();
    keys.sized(terminal.cols, terminal.rows);
  };
  const watch = new ResizeObserver(size);
  watch.observe(place);
  size();
  return {
    write: (bytes) => terminal.write(bytes),
    tell: (words) => terminal.write(`\r\n\x1b[0m[fuga: ${words.replace(/[\x00-\x1f\x7f-\x9f]/g, "?")}]\r\n`),
    focus: () => terminal.focus(),
    close: () => {
      watch.disconnect();
      terminal.dispose();
      forget();
    },
  };
}
