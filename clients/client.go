// Go's net/http and encoding/json, which writes an ampersand as \u0026.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
)

type row struct {
	APISuffix string `json:"api_suffix"`
	RequestID any    `json:"request_id"`
}

type answer struct {
	Responses []struct {
		PromoNumber string `json:"promo_number"`
		RequestID   any    `json:"request_id"`
	} `json:"responses"`
	PromoNumber string `json:"promo_number"`
	Errors      struct {
		Class string `json:"class"`
	} `json:"errors"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(response *http.Response, err error) (int, answer) {
	check(err)
	defer response.Body.Close()
	var read answer
	check(json.NewDecoder(response.Body).Decode(&read))
	return response.StatusCode, read
}

func main() {
	base, pool, key, keyword := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	query := url.Values{"ring_pool_key": {key}, "keyword": {keyword}}.Encode()
	suffix := pool + "/allocate_number.json?" + query
	post := func(body any) (int, answer) {
		text, err := json.Marshal(body)
		check(err)
		url := base + "/api/2013-07-01/bulk.json"
		return read(http.Post(url, "application/json", bytes.NewReader(text)))
	}
	_, bulk := post(map[string]any{"requests": []row{{suffix, "a/b&c"}, {suffix, 7}}})
	fmt.Print("bulk")
	for _, row := range bulk.Responses {
		fmt.Print(" ", row.PromoNumber, " ", row.RequestID)
	}
	fmt.Println()
	_, single := read(http.Get(base + "/api/2015-12-09/ring_pools/" + suffix))
	fmt.Println("single", single.PromoNumber)
	status, refused := post([]int{})
	fmt.Println("refused", status, refused.Errors.Class)
}
