// Applies the stored theme before the first paint. Without one, the system's theme applies.
(() => {
  const theme = localStorage.getItem("tierway.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
