/** A number of the page and the one that its visitor sees instead. Both are E.164. */
export interface Swap {
  from: string;
  to: string;
  /** `to` as it is written in its country. */
  formatted: string;
}

/** What the script puts at `window.ringwell`. */
export interface Ringwell {
  /** The visitor's numbers for these numbers of the page; a number without a swap is its own. Waits for the server 1.5 s at most. */
  numbers(wanted: string[]): Promise<Swap[]>;
  /** Calls `listener` now, if there are numbers, and at every change. */
  onChange(listener: (swaps: Swap[]) => void): void;
  /** Asks again, for instance after a first answer that was too late. A visitor who has a number keeps it, with the parameters of the visit that got it. */
  run(): void;
  /** Whether the visitor may be remembered. `false` forgets the visitor and shows the page's own numbers. */
  consent(isGiven: boolean): void;
  /** Calls `then` at once. Before the script has loaded, `window.ringwell` may be an array of such functions. */
  push(then: (ringwell: Ringwell) => void): void;
}

declare global {
  interface Window {
    ringwell?: Ringwell | ((ringwell: Ringwell) => void)[];
  }
}
