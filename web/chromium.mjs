/** How the tests start Chromium, without what it does on its own. CHROMIUM names the program. */
export const CHROMIUM = {
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  // Pages come back from the back button's cache, as for a user.
  ignoreDefaultArgs: ['--disable-back-forward-cache'],
};
