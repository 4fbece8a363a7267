import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, result } from "../api/client";
import { queries, useSession } from "../api/queries";
import { toast } from "../ui/Toasts";

const themes = ["system", "light", "dark"] as const;
type Theme = (typeof themes)[number];

function storedTheme(): Theme {
  const stored = localStorage.getItem("tierway.theme");
  return themes.find((t) => t === stored) ?? "system";
}

function applyTheme(theme: Theme): void {
  if (theme === "system") {
    localStorage.removeItem("tierway.theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("tierway.theme", theme);
    document.documentElement.dataset.theme = theme;
  }
  dispatchEvent(new Event("themechange")); // charts draw their colours themselves
}

/** Account shows the session's name and role, the theme and the logout. */
export function Account() {
  const session = useSession();
  const [theme, setTheme] = useState(storedTheme);
  const logout = useMutation({
    mutationFn: () => result(api.DELETE("/admin/session")),
    onSuccess: () => {
      queries.clear();
      location.hash = "#/login";
      location.reload(); // nothing of the session stays in memory
    },
    onError: (e) => toast(`The logout failed: ${e.message}`),
  });
  return (
    <div className="account">
      <span>
        {session?.name} <small className="muted">{session?.role}</small>
      </span>
      <select
        aria-label="Theme"
        value={theme}
        onChange={(e) => {
          const chosen = e.target.value as Theme;
          setTheme(chosen);
          applyTheme(chosen);
        }}
      >
        {themes.map((t) => (
          <option key={t} value={t}>
            {t} theme
          </option>
        ))}
      </select>
      <button type="button" onClick={() => logout.mutate()} disabled={logout.isPending}>
        Log out
      </button>
    </div>
  );
}
