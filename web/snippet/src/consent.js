// Follows the visitor's consent: Google's Consent Mode v2, and the TCF.

/** The interval of checks of the page's dataLayer, which has no event of its own, in milliseconds. */
const LOOK = 500;

/** Calls `decided(isAllowed)` for every decision, including earlier ones. */
export const follow = (decided) => {
  let seen = 0;
  const look = () => {
    for (const entry of (window.dataLayer || []).slice(seen)) {
      seen++;
      const granted = entry?.[0] === 'consent' && entry[2]?.analytics_storage;
      if (granted) decided(granted === 'granted');
    }
  };
  look();
  setInterval(look, LOOK);
  if (window.__tcfapi) {
    __tcfapi('addEventListener', 2, (data, isGood) => {
      if (isGood && /^tcl|^us/.test(data.eventStatus)) decided(!!(data.purpose.consents[1] && data.purpose.consents[7]));
    });
  }
};
