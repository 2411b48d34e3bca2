"use strict";
// All texts from judges and datasets reach the page through textContent alone; nothing here builds markup from strings.
const report = {};
