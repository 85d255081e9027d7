// Follows what the visitor allowed: Google's Consent Mode v2, and the TCF.

/** How often the page's dataLayer is looked at, which has no event of its own, in milliseconds. */
const LOOK = 500;

/** Calls `decided(isAllowed)` for every decision, also those made before. */
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
