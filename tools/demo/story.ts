// How the demo and the device check tell what they see: headings, commands, details, checks. Text from elsewhere is made safe here.
// It tells; what is right is decided by who calls it.

import { type Painter, painter, visibleLine } from "../bxctl/render.ts";
import { systemTerminal } from "../bxctl/terminal.ts";

/** One thing that must hold. */
export interface Check {
  readonly text: string;
  readonly ok: boolean;
}

const detailCharactersMax = 400;

export class Story {
  readonly #paint: Painter;

  constructor(colour: boolean) {
    this.#paint = painter(colour);
  }

  heading(text: string): void {
    console.log(`\n${this.#paint("bold", visibleLine(text))}`);
  }

  text(text: string): void {
    console.log(visibleLine(text));
  }

  command(words: readonly string[]): void {
    console.log(
      this.#paint("dim", visibleLine(`  $ bx ${words.map(quoted).join(" ")}`, detailCharactersMax)),
    );
  }

  detail(name: string, text: string): void {
    console.log(
      `    ${this.#paint("cyan", visibleLine(name).padEnd(9))} ${visibleLine(text, detailCharactersMax)}`,
    );
  }

  check({ text, ok }: Check): void {
    console.log(`  ${this.#paint(ok ? "green" : "red", ok ? "✓" : "✗")} ${visibleLine(text)}`);
  }

  /** One line of the end: what was shown, and whether it holds. */
  verdict(name: string, { ok, text }: { ok: boolean; text: string }): void {
    const word = ok ? this.#paint("green", "ok".padEnd(6)) : this.#paint("red", "FAILED");
    console.log(`${visibleLine(name)} ${word} ${visibleLine(text)}`);
  }
}

/** Colours on a terminal alone, and not where NO_COLOR or a dumb one asks for none. */
export function terminalColour(): boolean {
  return systemTerminal({ plain: Deno.env.get("TERM") === "dumb" }).colour;
}

function quoted(word: string): string {
  return /^[\w./:=-]+$/.test(word) ? word : JSON.stringify(word);
}
