-- What a search in the database reads: the words and names of tools, how rare each word is, a row of
-- numbers a tool, and two functions that put candidates forward.

do $$
declare
    found text := (select extversion from pg_extension where extname = 'vector');
begin
    if string_to_array(found, '.')::int[] < array[0, 8] then
        raise exception 'pgvector is %, wanted 0.8 or newer, which goes on until enough pass', found
            using hint = 'alter extension vector update';
    end if;
end
$$;

alter table toolrag.tools
    add column points tsvector,  -- words by what ToolSearch gives for them: A to D
    add column names text[],     -- comparable forms of the names it answers to
    add column server_key text;  -- comparable form of its server's name

create index tools_words on toolrag.tools using gin (words);
create index tools_points on toolrag.tools using gin (points);
create index tools_names on toolrag.tools using gin (names);
create index tools_server on toolrag.tools (tenant, server);
create index tools_server_key on toolrag.tools (tenant, server_key);
create index tools_tags on toolrag.tools using gin (tags);

-- The weighted sum of the vectors of a tool's texts.
create table toolrag.tool_vectors (
    tenant text not null,
    space text not null,
    id text not null,
    vector halfvec not null,
    dims smallint not null generated always as (vector_dims(vector)) stored,
    primary key (tenant, space, id),
    foreign key (tenant, id) references toolrag.tools on delete cascade
);
create index tool_vectors_tool on toolrag.tool_vectors (tenant, id);

-- An index holds vectors of one dimension: these are the usual ones. Others are read without.
do $$
declare
    dims int;
begin
    foreach dims in array array[256, 384, 512, 768, 1024, 1536, 2048, 3072] loop
        execute format(
            'create index tool_vectors_%1$s on toolrag.tool_vectors'
            ' using hnsw ((vector::halfvec(%1$s)) halfvec_ip_ops) where dims = %1$s', dims);
    end loop;
end
$$;

-- How many tools have a word; of what ts_rank makes of it in each, the sum and the sum of squares.
-- The word '' stands for all tools.
create table toolrag.word_counts (
    tenant text not null check (tenant <> ''),
    word text not null,
    tools bigint not null,
    total double precision not null,
    squares double precision not null,
    primary key (tenant, word)
);

create index word_counts_gone on toolrag.word_counts (tenant) where tools <= 0;

-- How the vectors of a space lie: the mean of the tools' rows, and their covariance.
create table toolrag.spreads (
    tenant text not null references toolrag.catalogues on delete cascade,
    space text not null,
    embedded bigint not null default -1,  -- the catalogue version whose tools all had vectors
    version bigint not null default -1,   -- the catalogue version that was measured
    tools bigint not null default 0,
    outside real not null default 0,
    mean bytea,        -- float32, dims
    covariance bytea,  -- float32, dims x dims
    primary key (tenant, space)
);

do $$
declare
    name text;
begin
    foreach name in array array['tool_vectors', 'word_counts', 'spreads'] loop
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

-- A word as a query for it alone.
create function toolrag.query_of(word text) returns tsquery
    language sql immutable strict parallel safe
return ('''' || replace(replace(word, '\', '\\'), '''', '''''') || '''')::tsquery;

-- What a word is worth in a text: more with every repeat, up to 1, and less in a long text.
create function toolrag.worth(words tsvector, query tsquery) returns real
    language sql immutable strict parallel safe
return ts_rank('{1,1,1,1}', words, query, 1);

-- Keeps `word_counts`, and takes out the vectors of tools whose text is another now.
create function toolrag.tools_changed() returns trigger language plpgsql as $$
declare
    entering text := 'select tenant, words, 1 from after';
    leaving text := 'select tenant, words, -1 from before';
begin
    if tg_op = 'UPDATE' then
        delete from toolrag.tool_vectors as v using before as b, after as a
        where a.tenant = b.tenant and a.id = b.id and a.digest <> b.digest
            and v.tenant = b.tenant and v.id = b.id;
        entering := 'select a.tenant, a.words, 1 from after as a'
            ' left join before as b using (tenant, id) where a.words is distinct from b.words';
        leaving := 'select b.tenant, b.words, -1 from before as b'
            ' left join after as a using (tenant, id) where a.words is distinct from b.words';
    end if;
    execute format(
        'insert into toolrag.word_counts as known'
        ' select tenant, word, sum(sign), sum(sign * worth), sum(sign * worth * worth) from ('
        '  select tenant, word, sign,'
        '   toolrag.worth(words, toolrag.query_of(word))::double precision as worth'
        '  from (%1$s) as changed (tenant, words, sign), unnest(tsvector_to_array(words)) as word'
        '  union all select tenant, '''', sign, 0 from (%1$s) as changed (tenant, words, sign)'
        ' ) as counted group by tenant, word order by tenant, word'
        ' on conflict (tenant, word) do update set tools = known.tools + excluded.tools,'
        ' total = known.total + excluded.total, squares = known.squares + excluded.squares',
        case tg_op when 'INSERT' then entering when 'DELETE' then leaving
            else entering || ' union all ' || leaving end);
    if tg_op <> 'INSERT' then
        delete from toolrag.word_counts where tools <= 0 and tenant in (select tenant from before);
    end if;
    return null;
end
$$;

create trigger tools_inserted after insert on toolrag.tools referencing new table as after
    for each statement execute function toolrag.tools_changed();
create trigger tools_deleted after delete on toolrag.tools referencing old table as before
    for each statement execute function toolrag.tools_changed();
create trigger tools_updated after update on toolrag.tools
    referencing old table as before new table as after
    for each statement execute function toolrag.tools_changed();

-- The distinct words of a request with what they are worth: their inverse document frequency, as in
-- index/lexical.py.
create function toolrag.rarities(asked text[])
    returns table (
        word text, tools bigint, rarity double precision,
        total double precision, squares double precision, size bigint
    )
    language sql stable rows 8
begin atomic
    select a.word, coalesce(k.tools, 0),
        ln(1 + (n.size - coalesce(k.tools, 0) + 0.5) / (coalesce(k.tools, 0) + 0.5)),
        coalesce(k.total, 0), coalesce(k.squares, 0), n.size
    from (select distinct unnest(asked) as word) as a
    cross join (
        select coalesce(sum(tools), 0)::bigint as size from toolrag.word_counts
        where tenant = current_setting('toolrag.tenant', true) and word = ''
    ) as n
    left join toolrag.word_counts as k
        on k.tenant = current_setting('toolrag.tenant', true) and k.word = a.word;
end;

-- Which tools to rank by words: those with the sets of words that are worth most together, which are
-- as well the sets that the fewest tools are likely to have. `most` is about how many tools that is,
-- were the words independent. Of many words the rarest sixteen count, unless all tools are to be
-- ranked, and sets of at most three. Null where no tool has any.
create function toolrag.worth_ranking(asked text[], most bigint) returns tsquery
    language sql stable
begin atomic
    with recursive ranked as (
        select row_number() over (order by tools, word) as number,
            tools::double precision as tools, size, toolrag.query_of(word) as query
        from toolrag.rarities(asked) where tools > 0
    ), known as (
        select * from ranked where number <= 16 or size <= most
    ), sets as (
        select number as last, 1 as words, tools, null::double precision as of_fewer, query from known
        union all
        select k.number, s.words + 1, s.tools * k.tools / k.size, s.tools, s.query && k.query
        from sets as s
        join known as k on k.number > s.last and k.size > most and s.words < 3
    ), counted as (
        select tools, sum(tools) over (order by tools, query::text) as so_far from sets
    ), limited as (
        select case when (select max(size) from known) <= most then most
            else greatest(max(tools) filter (where so_far <= most), min(tools)) end as tools
        from counted
    )
    select string_agg('(' || s.query::text || ')', ' | ')::tsquery
    from sets as s, limited as l
    where s.tools <= l.tools and (s.of_fewer is null or s.of_fewer > l.tools);
end;

create function toolrag.passes(
    tool toolrag.tools, servers text[], tags text[], ids text[], required tsquery
) returns boolean language sql immutable
return (servers is null or tool.server = any(servers))
    and (tags is null or tool.tags && tags)
    and (ids is null or tool.id = any(ids))
    and (required is null or tool.points @@ required);

-- The candidates by words, by points and by name. In the row without an id: mean and standard
-- deviation of the lexical scores of all tools.
create function toolrag.by_words(
    asked text[], point_words tsquery, asked_names text[], only_servers text[], only_tags text[],
    only_ids text[], required tsquery, candidates int, most int
) returns table (id text, named boolean, mean double precision, deviation double precision)
    language plpgsql stable security definer rows 60
    set plan_cache_mode = force_custom_plan
    set jit = off
as $$
declare
    owner text := current_setting('toolrag.tenant', true);
    ranked tsquery := toolrag.worth_ranking(asked, most);
    given int;
begin
    -- Name by name: of many at once PostgreSQL would expect more tools than it is worth to look up.
    return query
    select distinct t.id, true, null::double precision, null::double precision
    from unnest(asked_names) as n (name)
    join toolrag.tools as t on t.tenant = owner and t.names @> array[n.name];

    return query
    with words as materialized (
        select toolrag.query_of(r.word) as query, r.* from toolrag.rarities(asked) as r
        where r.tools > 0
    ), matching as materialized (
        select t.id, toolrag.passes(t, only_servers, only_tags, only_ids, required) as passes,
            s.score, s.squares, ts_rank('{0.17,0.34,0.84,1}', t.points, point_words) as points
        from (
            select * from toolrag.tools
            where tenant = owner
                and (tools.words @@ ranked or ranked is null and tools.points @@ point_words)
            limit 4 * most
        ) as t
        cross join lateral (
            select coalesce(sum(part), 0) as score, sum(part * part) as squares from (
                select w.rarity * toolrag.worth(t.words, w.query) as part from words as w
            ) as parts
        ) as s
    ), spread as (
        select m.mean, greatest(m.square - m.mean * m.mean, 0) as variance from (
            select sum(w.rarity * w.total) / max(w.size) as mean,
                (sum(w.rarity * w.rarity * w.squares) + coalesce(
                    (select sum(r.score * r.score - r.squares) from matching as r), 0)
                ) / max(w.size) as square
            from words as w
        ) as m
    )
    (select m.id, false, null::double precision, null::double precision from matching as m
     where m.passes and m.score > 0 order by m.score desc, m.id limit candidates)
    union
    (select m.id, false, null, null from matching as m
     where m.passes and m.points > 0 order by m.points desc, m.id limit candidates)
    union all
    select null, false, s.mean, sqrt(s.variance) from spread as s where s.mean is not null;

    get diagnostics given = row_count;
    if given > candidates then
        return;
    end if;
    -- Too few of those that were ranked pass, or few have such a set of words: rank any that pass.
    return query
    with words as materialized (
        select toolrag.query_of(r.word) as query, r.rarity from toolrag.rarities(asked) as r
        where r.tools > 0
    ), passing as materialized (
        select t.id, ts_rank('{0.17,0.34,0.84,1}', t.points, point_words) as points, (
            select sum(w.rarity * toolrag.worth(t.words, w.query)) from words as w
        ) as score
        from toolrag.tools as t
        where t.tenant = owner
            and (t.words @@ (select string_agg(query::text, ' | ')::tsquery from words)
                or t.points @@ point_words)
            and (only_servers is null or t.server = any(only_servers))
            and (only_tags is null or t.tags && only_tags)
            and (only_ids is null or t.id = any(only_ids))
            and (required is null or t.points @@ required)
        limit 4 * most
    )
    (select p.id, false, null::double precision, null::double precision from passing as p
     where p.score > 0 order by p.score desc, p.id limit candidates)
    union
    (select p.id, false, null, null from passing as p
     where p.points > 0 order by p.points desc, p.id limit candidates);
end
$$;

-- The candidates by meaning, nearest first.
create function toolrag.by_meaning(
    asked halfvec, of_space text, only_servers text[], only_tags text[], only_ids text[],
    required tsquery, candidates int
) returns setof text
    language plpgsql stable security definer rows 30
    set jit = off
    set hnsw.iterative_scan = strict_order
    set hnsw.ef_search = 200
as $$
declare
    nearest text := format(
        'select v.id from toolrag.tool_vectors as v'
        ' where v.tenant = current_setting(''toolrag.tenant'', true) and v.space = $2'
        ' and v.dims = %1$s %2$s %3$s order by (v.vector::halfvec(%1$s) <#> $1::halfvec(%1$s))',
        vector_dims(asked),
        case when only_ids is not null then 'and v.id = any($5)' end,
        case when only_servers is not null or only_tags is not null or required is not null then
            'and exists (select from toolrag.tools as t where t.tenant = v.tenant'
            ' and t.id = v.id and toolrag.passes(t, $3, $4, null, $6))' end);
    found int;
begin
    return query execute nearest || ' limit $7'
        using asked, of_space, only_servers, only_tags, only_ids, required, candidates;
    get diagnostics found = row_count;
    if found < candidates then
        -- An index gives up when few of the nearest pass: read all that do, by what is no index's.
        return query execute nearest || ' + 0::float8 limit $7'
            using asked, of_space, only_servers, only_tags, only_ids, required, candidates;
    end if;
end
$$;

-- A function that runs as its owner looks nowhere but in known schemas: pgvector's may be any, and
-- others may write to it, so what need not look there does not. The functions above that these two
-- call were read when they were made, and look nowhere.
alter function toolrag.by_words set search_path = pg_catalog, pg_temp;

do $$
begin
    execute (
        select format('alter function toolrag.by_meaning set search_path = pg_catalog, %I, pg_temp',
            n.nspname)
        from pg_extension join pg_namespace as n on n.oid = extnamespace where extname = 'vector'
    );
end
$$;
