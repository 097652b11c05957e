-- One search: what speaks for the tools that meaning, words, points and names put forward.
-- Every row has the catalogue's state too; one without an id stands for no tool at all.
with asked as (
    select %(vector)b::halfvec as vector, %(space)s::text as space, %(terms)s::text[] as terms,
        %(point_words)s::text[] as point_words, %(any_point)s::tsquery as any_point,
        %(names)s::text[] as names, %(servers)s::text[] as servers, %(tags)s::text[] as tags,
        case when %(of_server)s::text is null then %(ids)s::text[] else array(
            select t.id from toolrag.tools as t
            where t.tenant = current_setting('toolrag.tenant', true)
                and t.server_key = %(of_server)s::text
                and (%(ids)s::text[] is null or t.id = any(%(ids)s::text[]))
        ) end as ids,
        %(required)s::tsquery as required,
        %(candidates)s::int as candidates
),
state as (
    select c.version, coalesce(s.embedded, -1) as embedded, coalesce(s.version, -1) as measured,
        coalesce((
            select w.tools from toolrag.word_counts as w where w.tenant = c.tenant and w.word = ''
        ), 0) as tools,
        (
            select v.dims from toolrag.tool_vectors as v
            where v.tenant = c.tenant and v.space = %(space)s::text limit 1
        ) as dims,
        exists (
            select from toolrag.tools as t
            where t.tenant = c.tenant and t.server_key = %(server)s::text and t.server_key <> ''
        ) as is_server
    from toolrag.catalogues as c
    left join toolrag.spreads as s on s.tenant = c.tenant and s.space = %(space)s::text
    where c.tenant = current_setting('toolrag.tenant', true)
),
near as materialized (
    select n.id from asked as a cross join lateral toolrag.by_meaning(
        a.vector, a.space, a.servers, a.tags, a.ids, a.required, a.candidates) as n (id)
    where a.vector is not null
),
worded as materialized (
    select w.* from asked as a cross join lateral toolrag.by_words(
        a.terms, a.any_point, a.names, a.servers, a.tags, a.ids, a.required, a.candidates,
        %(ranked)s::int) as w
),
rarities as materialized (
    select toolrag.query_of(r.word) as query, r.tools, r.rarity
    from asked as a cross join lateral toolrag.rarities(a.terms) as r
),
chosen as (
    select id, bool_or(named) as named from (
        select id, named from worded where id is not null
        union all
        select id, false from near
    ) as each group by id
),
found as (
    select t.id, c.named,
        -- The others have been asked already.
        not c.named or toolrag.passes(t, a.servers, a.tags, a.ids, a.required) as passes,
        (
            select -(v.vector <#> a.vector) from toolrag.tool_vectors as v
            where v.tenant = t.tenant and v.space = a.space and v.id = t.id
                and v.dims = vector_dims(a.vector)
        ) as dense,
        coalesce(w.lexical, 0) as lexical, coalesce(w.coverage, 0) as coverage,
        (
            -- A word of one place has its label's share of 6 / pi^2.
            select coalesce(sum(round(12 * 1.64493406685 * ts_rank(
                '{0.1666667, 0.3333333, 0.8333333, 1}', t.points, toolrag.query_of(word)))), 0)
            from unnest(a.point_words) as word
        ) as points,
        case when c.named or %(documents)s::boolean or starts_with(t.id, E'\x01')
            then t.document::text end as document
    from chosen as c
    cross join asked as a
    join toolrag.tools as t
        on t.tenant = current_setting('toolrag.tenant', true) and t.id = c.id
    cross join lateral (
        select sum(r.rarity * toolrag.worth(t.words, r.query)) as lexical,
            sum(r.rarity) filter (where t.words @@ r.query) / sum(r.rarity) as coverage
        from rarities as r
    ) as w
)
select s.version, s.embedded, s.measured, s.tools, s.dims, s.is_server, w.mean, w.deviation, f.*
from state as s
left join (select mean, deviation from worded where id is null) as w on true
left join found as f on true
