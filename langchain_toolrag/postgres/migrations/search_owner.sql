-- Where tenants are kept apart by a policy, PostgreSQL looks at the policy first and uses no index on
-- words or names, so that a search reads all tools of its tenant. The functions that put candidates
-- forward therefore run as a role of their own, which nobody can be and which no policy holds back;
-- they ask for the rows of the connection's tenant themselves.
-- Like the policies they keep a query from reaching the rows of a tenant its connection has not named.
-- Neither keeps out whoever sends SQL of their own: any user may name any tenant.
do $$
begin
    create role toolrag_search nologin;
exception when duplicate_object or unique_violation then
    null;  -- Roles are the whole server's: another database may have made it.
end
$$;

grant usage, create on schema toolrag to toolrag_search;
grant select on toolrag.tools, toolrag.tool_vectors, toolrag.word_counts to toolrag_search;

do $$
declare
    is_superuser boolean := (select rolsuper from pg_roles where rolname = current_user);
    name text;
begin
    foreach name in array array['tools', 'tool_vectors', 'word_counts'] loop
        execute format('drop policy if exists searched on toolrag.%I', name);
        execute format(
            'create policy searched on toolrag.%I for select to toolrag_search using (true)', name);
    end loop;
    -- A member would see all tenants' rows: whoever runs this is one no longer than it takes.
    if not is_superuser then
        execute format('grant toolrag_search to %I', current_user);
    end if;
    alter function toolrag.by_words owner to toolrag_search;
    alter function toolrag.by_meaning owner to toolrag_search;
    if not is_superuser then
        execute format('revoke toolrag_search from %I', current_user);
    end if;
exception when insufficient_privilege then
    raise warning 'toolrag_search is another user''s role: searches see all they should, and read '
        'every tool of their tenant for it; have a superuser run `toolrag db upgrade --roles`';
end
$$;

revoke create on schema toolrag from toolrag_search;
