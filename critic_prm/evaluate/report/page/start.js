"use strict";
// All texts from judges and datasets are inserted as textContent only; no code here builds markup from strings.
const report = {};
