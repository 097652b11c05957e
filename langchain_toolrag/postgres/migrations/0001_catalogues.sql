-- Catalogues of tools, one a tenant, and the vectors of their texts.
-- The extension may be there already: whoever runs this then needs no right to create it.
create extension if not exists vector;

-- `version` counts the changes of a tenant's tools. `history` is another one where the catalogue was
-- made anew, `forgotten` the version up to which `removed` may lack tools.
create table toolrag.catalogues (
    tenant text primary key check (tenant <> ''),
    version bigint not null default 0,
    history uuid not null default gen_random_uuid(),
    forgotten bigint not null default 0
);

-- `id` is the tool's, or where a key cannot hold that (a NUL, too long) \x01 and its digest: the document
-- has it as it is. json keeps what jsonb refuses, such as a NUL or half a surrogate pair in somebody's description.
-- `position` orders the tools, with gaps; `digest` is the document's, `changed` the version that wrote
-- the row; `words` are those that search reads.
create table toolrag.tools (
    tenant text not null references toolrag.catalogues on delete cascade,
    id text not null,
    position bigint not null,
    name text not null,
    server text,
    tags text[] not null default '{}',
    document json not null,
    stored json,
    digest bytea not null,
    changed bigint not null,
    words tsvector not null,
    primary key (tenant, id)
);
create index tools_changed on toolrag.tools (tenant, changed);
create index tools_position on toolrag.tools (tenant, position);

-- Tools that are gone, so that a copy that knows them can drop them.
create table toolrag.removed (
    tenant text not null references toolrag.catalogues on delete cascade,
    id text not null,
    version bigint not null,
    primary key (tenant, id)
);
create index removed_version on toolrag.removed (tenant, version);

-- What `toolrag ingest` listed tools from.
create table toolrag.sources (
    tenant text not null references toolrag.catalogues on delete cascade,
    name text not null,
    position bigint not null,
    described json not null,
    primary key (tenant, name)
);

-- Vectors of texts, by the text's digest; `space` is the digest of the model's name.
create table toolrag.vectors (
    tenant text not null check (tenant <> ''),
    space text not null,
    key bytea not null,
    vector vector not null,
    primary key (tenant, space, key)
);

-- A connection that has not said whose rows it wants sees none; the owner of the tables neither.
do $$
declare
    name text;
begin
    foreach name in array
        array['catalogues', 'tools', 'removed', 'sources', 'vectors']
    loop
        execute format('alter table toolrag.%I enable row level security', name);
        execute format('alter table toolrag.%I force row level security', name);
        execute format(
            'create policy own_rows on toolrag.%I using (%s) with check (%s)',
            name,
            'tenant = nullif(current_setting(''toolrag.tenant'', true), '''')',
            'tenant = nullif(current_setting(''toolrag.tenant'', true), '''')'
        );
    end loop;
end
$$;
