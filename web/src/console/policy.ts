/**
 * xterm.js writes `<style>` elements and `style` attributes of spans, which the page's
 * Content-Security-Policy (`style-src 'self'`) refuses. Through the CSSOM the policy allows
 * the same: sheets that are constructed, and `cssText`.
 */
Object.defineProperty(HTMLSpanElement.prototype, "setAttribute", {
  value(this: HTMLSpanElement, name: string, value: string): void {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  },
});

/** Let a terminal make its styles as it opens; return what forgets them. */
export function underPolicy(open: () => void): () => void {
  const sheets: CSSStyleSheet[] = [];
  const make = (name: string): Element => {
    if (name !== "style") return Document.prototype.createElement.call(document, name);
    const sheet = new CSSStyleSheet();
    sheets.push(sheet);
    document.adoptedStyleSheets.push(sheet);
    const element = Document.prototype.createElement.call(document, "template");
    Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) });
    return element;
  };
  document.createElement = make as Document["createElement"];
  try {
    open();
  } finally {
    Reflect.deleteProperty(document, "createElement");
  }
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => !sheets.includes(each));
  };
}
