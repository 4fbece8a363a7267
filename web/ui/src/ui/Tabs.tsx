import { Link, type LinkProps } from "@tanstack/react-router";
import type { ReactNode } from "react";

interface TabsProps<Id extends string> {
  label: string;
  to: LinkProps["to"];
  /** Name of the search parameter that holds the chosen tab. */
  param: string;
  items: readonly { id: Id; label: ReactNode }[];
  current: Id;
}

/** Tabs are links to the parts of a page: the chosen part is in the address. */
export function Tabs<Id extends string>({ label, to, param, items, current }: TabsProps<Id>) {
  return (
    <nav className="tabs" aria-label={label}>
      {items.map((t) => (
        <Link
          key={t.id}
          to={to}
          search={((old: Record<string, string>) => ({ ...old, [param]: t.id })) as never}
          className={t.id === current ? "active" : undefined}
          aria-current={t.id === current ? "true" : undefined}
          activeProps={{}}
          replace
        >
          {t.label}
        </Link>
      ))}
    </nav>
  );
}
