// .NET's HttpClient, and the serializer that ASP.NET has had since 2008, which writes & < > and '
// as \u0026 and so on. It is run with Mono, which is available as a package; newer .NET versions
// write the same escapes with System.Text.Json.
using System;
using System.Collections;
using System.Collections.Generic;
using System.Net.Http;
using System.Text;
using System.Web.Script.Serialization;

static class Client
{
    static readonly HttpClient Http = new HttpClient();
    static readonly JavaScriptSerializer Json = new JavaScriptSerializer();

    static HttpResponseMessage Post(string address, object body)
    {
        var json = new StringContent(Json.Serialize(body), Encoding.UTF8, "application/json");
        return Http.PostAsync(address + "/api/2013-07-01/bulk.json", json).Result;
    }

    static IDictionary<string, object> Read(HttpResponseMessage answer)
    {
        return Json.Deserialize<Dictionary<string, object>>(answer.Content.ReadAsStringAsync().Result);
    }

    static void Main(string[] args)
    {
        string address = args[0], pool = args[1], key = args[2];
        var suffix = pool + "/allocate_number.json?ring_pool_key=" + key
            + "&keyword=" + Uri.EscapeDataString(args[3]);
        var batch = Read(Post(address, new { requests = new object[] {
            new { api_suffix = suffix, request_id = "a/b&c" },
            new { api_suffix = suffix, request_id = 7 } } }));
        var line = "bulk";
        foreach (IDictionary<string, object> row in (IEnumerable)batch["responses"])
            line += " " + row["promo_number"] + " " + row["request_id"];
        Console.WriteLine(line);

        var single = Read(Http.GetAsync(address + "/api/2015-12-09/ring_pools/" + suffix).Result);
        Console.WriteLine("single " + single["promo_number"]);

        var refused = Post(address, new object[0]);
        var errors = (IDictionary<string, object>)Read(refused)["errors"];
        Console.WriteLine("refused " + (int)refused.StatusCode + " " + errors["class"]);
    }
}
